//! The image in QEMU, started as its profile says and driven with the real `adb`: the whole device, nothing pretended.

mod world;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use world::{Adb, Machine, Memory, apk, eventually, folder, images, noise, overlay};

fn identity(adb: &Adb, serial: &str, android_id: &str) -> Value {
    json!({
        "serial": serial,
        "androidId": android_id,
        "machineId": format!("{android_id}{android_id}"),
        "deviceName": "Test device",
        "androidVersion": "15",
        "seed": "c2VlZA==",
        "adb": {"access": "keys", "keys": [adb.key()]},
    })
}

#[test]
fn a_phone_does_what_adb_asks_of_it() {
    let (mut adb, mut foreign) = (Adb::new(), Adb::new());
    let started = Instant::now();
    let mut machine = Machine::boot("phone", &identity(&adb, "EMU-1", "00000000000000aa"));
    let mut control = machine.ready();
    println!("ready after {:?}", started.elapsed());

    // who it is
    assert!(adb.connect(machine.port).starts_with("connected to"));
    assert!(foreign.connect(machine.port).contains("failed to authenticate"));
    let told = "getprop ro.serialno; getprop ro.build.version.release; getprop ro.build.version.sdk; \
                getprop sys.boot_completed; settings get secure android_id; hostname; cat /etc/machine-id";
    assert_eq!(
        adb.shell(told),
        "EMU-1\n15\n35\n1\n00000000000000aa\nemu-1\n00000000000000aa00000000000000aa"
    );

    // shell
    let output = adb.output(&["shell", "echo out; echo err >&2; exit 7"]);
    assert_eq!(
        (output.status.code(), output.stdout, output.stderr),
        (Some(7), b"out\n".to_vec(), b"err\n".to_vec())
    );

    // files
    fs::write(adb.path("blob"), noise(16 << 20)).expect("a file");
    let sum = |file: &Path| {
        String::from_utf8(Command::new("sha256sum").arg(file).output().expect("a sum").stdout).expect("text")
    };
    adb.run(&["push", &adb.path("blob").display().to_string(), "/data/local/tmp/blob"]);
    adb.run(&["pull", "/data/local/tmp/blob", &adb.path("back").display().to_string()]);
    let (here, there) = (sum(&adb.path("blob")), adb.shell("sha256sum /data/local/tmp/blob"));
    assert_eq!(here[..64], there[..64]);
    assert_eq!(here[..64], sum(&adb.path("back"))[..64]);

    // packages and the log
    fs::write(adb.path("app.apk"), apk("com.example.app")).expect("a file");
    assert!(adb.run(&["install", &adb.path("app.apk").display().to_string()]).contains("Success"));
    assert_eq!(adb.shell("pm list packages -3"), "package:com.example.app");
    adb.shell("am start -n com.example.app/.Main");
    assert!(adb.run(&["logcat", "-d", "-s", "ActivityManager:I"]).contains("com.example.app/.Main"));
    assert!(adb.run(&["logcat", "-d", "-b", "kernel"]).contains("Linux version"));
    let mut log = machine.log();
    log.say(&json!({"after": 0, "buffers": ["system"]}));
    assert!(log.hear()["seq"].is_u64());

    // the screen, by the device itself and by QEMU
    assert!(adb.output(&["exec-out", "screencap -p"]).stdout.starts_with(b"\x89PNG"));
    let shot = machine.folder.path().join("shot.png");
    machine.qmp(&[json!({"execute": "screendump", "arguments": {"filename": shot, "format": "png"}})]);
    assert_eq!(size_of_picture(&shot), (720, 1280));

    // a touch of the viewer
    let place = |axis: &str, value: u32| json!({"type": "abs", "data": {"axis": axis, "value": value}});
    let button = |down: bool| json!({"type": "btn", "data": {"button": "left", "down": down}});
    let touch = [place("x", 0x4000), place("y", 0x7fff), button(true), button(false)];
    machine.qmp(&[json!({"execute": "input-send-event", "arguments": {"events": touch}})]);
    eventually("the touch leads home", || {
        (!adb.shell("dumpsys activity").contains("com.example.app")).then_some(())
    });

    // forward and reverse
    let mut server = adb
        .on_device(&["shell", "echo from the device | nc -l -p 7000"])
        .stdout(Stdio::null())
        .spawn()
        .expect("adb");
    let local = adb.run(&["forward", "tcp:0", "tcp:7000"]).trim().to_owned();
    let heard = eventually("the device's server", || {
        let mut text = String::new();
        TcpStream::connect(format!("127.0.0.1:{local}")).ok()?.read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(heard, "from the device\n");
    server.wait().expect("adb");
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    adb.run(&["reverse", "tcp:7001", &format!("tcp:{}", service.local_addr().expect("an address").port())]);
    let client =
        std::thread::spawn(move || service.accept().expect("a connection").0.write_all(b"from the host\n"));
    // ADB knows no half-closed connections, so the input of `nc` stays open until it has ended.
    let mut command = adb.on_device(&["shell", "nc 127.0.0.1 7001"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("adb");
    let keyboard = child.stdin.take();
    let output = child.wait_with_output().expect("adb");
    drop(keyboard);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from the host\n");
    client.join().expect("a thread").expect("written");

    // the end
    assert_eq!(control.ask(json!({"op": "shutdown"}))["ok"], json!({}));
    assert!(machine.ends());
}

fn size_of_picture(file: &Path) -> (u32, u32) {
    let reader =
        png::Decoder::new(std::io::BufReader::new(fs::File::open(file).expect("a file"))).read_info();
    let reader = reader.expect("a PNG");
    (reader.info().width, reader.info().height)
}

#[test]
fn a_frozen_disk_takes_no_writes_and_the_watchdog_thaws_it() {
    let mut adb = Adb::new();
    let machine = Machine::boot("phone", &identity(&adb, "EMU-2", "00000000000000bb"));
    let mut control = machine.ready();
    adb.connect(machine.port);

    let started = Instant::now();
    control.ask(json!({"op": "freeze", "timeoutMs": 1500}));
    let mut write = adb.on_device(&["shell", "echo x > /data/late"]).spawn().expect("adb");
    assert_eq!(control.ask(json!({"op": "health"}))["ok"]["frozen"], true);
    std::thread::sleep(Duration::from_millis(300));
    assert!(write.try_wait().expect("adb").is_none(), "a frozen disk was written to");

    assert_eq!(control.wait_for("thawed")["reason"], "watchdog");
    assert!(started.elapsed() >= Duration::from_millis(1400));
    assert!(write.wait().expect("adb").success());

    // Nor does it stay frozen when the agent fails: another takes over, as the same device.
    control.ask(json!({"op": "resume", "identity": {"serial": "EMU-2B"}}));
    control.ask(json!({"op": "freeze", "timeoutMs": 60_000}));
    adb.reconnect(machine.port);
    let _ = adb.output(&["shell", "kill -9 $PPID"]);
    eventually("another agent", || machine.console().contains("starting it again").then_some(()));
    drop(control);
    let mut control = machine.ready();
    let health = control.ask(json!({"op": "health", "properties": true}));
    assert_eq!(
        (&health["ok"]["frozen"], &health["ok"]["properties"]["ro.serialno"]),
        (&json!(false), &json!("EMU-2B"))
    );
    adb.reconnect(machine.port);
    assert_eq!(adb.shell("echo x > /data/late && hostname"), "emu-2b");

    // A disk captured while it is frozen needs no repair.
    let told = control.ask(json!({"op": "freeze", "timeoutMs": 20_000}));
    assert_eq!(told["ok"]["timeoutMs"], 20_000, "{told}");
    let captured = machine.folder.path().join("captured.img");
    let copied = Command::new("qemu-img")
        .args(["convert", "-U", "-O", "raw"])
        .arg(machine.folder.path().join("disk.qcow2"))
        .arg(&captured)
        .output();
    assert!(copied.expect("qemu-img").status.success());
    assert_eq!(control.ask(json!({"op": "thaw"}))["ok"]["wasFrozen"], true);
    let checked = Command::new("/sbin/e2fsck").arg("-fn").arg(&captured).output().expect("e2fsck");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && !said.contains("journal"), "{said}");
}

#[test]
fn what_was_written_outlives_a_restart_of_the_machine_and_identity_comes_from_the_host() {
    let mut adb = Adb::new();
    let mut machine = Machine::boot("automotive", &identity(&adb, "EMU-3", "00000000000000cc"));
    let health = machine.ready().ask(json!({"op": "health"}));
    adb.connect(machine.port);
    assert!(adb.shell("pm list features").contains("android.hardware.type.automotive"));
    // Nobody has told it of a car.
    assert_eq!(health["ok"]["vehicle"], "absent");
    assert_eq!(adb.shell("getprop sys.vehicle.connected"), "0");
    let output = adb.output(&["shell", "vehicle get PERF_VEHICLE_SPEED"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "vehicle: the car is not connected\n");
    adb.shell("setprop persist.kept yes; echo kept > /data/kept");
    let shot = machine.folder.path().join("shot.png");
    machine.qmp(&[json!({"execute": "screendump", "arguments": {"filename": shot, "format": "png"}})]);
    assert_eq!(size_of_picture(&shot), (1280, 720));
    let _ = adb.output(&["reboot"]);
    assert!(machine.ends(), "a restart ends QEMU, which was told not to");

    let machine = Machine::launch(
        "automotive",
        &identity(&adb, "EMU-4", "00000000000000dd"),
        machine.into_folder(),
        &Memory::Own,
    );
    machine.ready();
    adb.connect(machine.port);

    assert_eq!(adb.shell("cat /data/kept; getprop persist.kept; getprop ro.serialno"), "kept\nyes\nEMU-4");
}

#[test]
fn two_clones_of_one_memory_are_not_the_same_device() {
    let mut adb = Adb::new();
    let template = folder();
    overlay(&images().join("phone.qcow2"), &template.path().join("disk.qcow2"));
    let template = Machine::launch(
        "phone",
        &identity(&adb, "TEMPLATE", "00000000000000ee"),
        template,
        &Memory::Template,
    );
    template.ready();
    let ignore_shared = json!({"execute": "migrate-set-capabilities", "arguments": {"capabilities": [{"capability": "x-ignore-shared", "state": true}]}});
    let state = template.folder.path().join("state");
    template.qmp(&[
        json!({"execute": "stop"}),
        ignore_shared.clone(),
        json!({"execute": "migrate", "arguments": {"uri": format!("exec:cat > {}", state.display())}}),
    ]);
    eventually("the memory is saved", || {
        (template.qmp(&[json!({"execute": "query-migrate"})])["status"] == "completed").then_some(())
    });
    let template = template.into_folder();

    let clones: Vec<Machine> = (0..2)
        .map(|_| {
            let folder = folder();
            overlay(&template.path().join("disk.qcow2"), &folder.path().join("disk.qcow2"));
            let machine = Machine::launch("phone", &json!({}), folder, &Memory::CloneOf(template.path()));
            machine.qmp(&[ignore_shared.clone(), json!({"execute": "migrate-incoming", "arguments": {"uri": format!("exec:cat {}", state.display())}})]);
            eventually("the memory is there", || (machine.qmp(&[json!({"execute": "query-status"})])["status"] != "inmigrate").then_some(()));
            machine.qmp(&[json!({"execute": "cont"})]);
            machine
        })
        .collect();
    let mut told = Vec::new();
    for (number, machine) in clones.iter().enumerate() {
        let mut given = identity(&adb, &format!("CLONE-{number}"), &format!("{number:016x}"));
        given["seed"] = json!(["Zmlyc3Qgc2VlZA==", "c2Vjb25kIHNlZWQ="][number]);
        given["mac"] = json!(format!("52:54:00:00:00:0{number}"));
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_millis() as u64;
        let answer = machine.control().ask(json!({"op": "resume", "time": now, "identity": given}));
        assert_eq!(answer["ok"]["identity"]["serial"], format!("CLONE-{number}"), "{answer}");
        assert!(adb.connect(machine.port).starts_with("connected"));
        told.push(adb.shell("getprop ro.serialno; cat /etc/machine-id /sys/class/net/eth0/address; head -c 16 /dev/urandom | od -An -tx1"));
        let clock: u64 = adb.shell("date +%s").parse().expect("a number");
        assert!(clock.abs_diff(now / 1000) < 20, "the clock says {clock}");
    }

    for (one, other) in told[0].lines().zip(told[1].lines()) {
        assert_ne!(one, other);
    }
    assert_eq!(told[0].lines().count(), 4);
}
