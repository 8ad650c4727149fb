//! Real devices through the API: the real binary, QEMU, and Debian's `adb`.

mod daemon;
mod sse;
mod yard;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use yard::{Adb, Data, Yard, apk, noise};

async fn log(yard: &Yard<'_>, id: &str, last: Option<u64>) -> sse::Reader {
    let path = format!("/api/v1/emulators/{id}/logs");
    sse::Reader::open(&yard.daemon.address, yard.token(), &path, last).await
}

#[tokio::test]
async fn no_line_of_a_device_is_lost_or_told_twice_however_often_its_server_is_killed() {
    let data = Data::new();
    let mut yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    let (id, device) = (phone.id.clone(), phone.address.clone());
    yard.until(&id, "running").await;
    adb.connect(&device);
    const LINES: usize = 300;
    let count = format!(
        "i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); log -t Count \"number $i\"; echo \"number $i\" > /dev/ttyS0; done"
    );
    let mut counting = adb.command(&["-s", &device, "shell", &count]).spawn().expect("a shell");

    // Killed while lines come, at moments that have nothing to do with them.
    let (mut events, mut last) = (Vec::new(), None);
    let mut kills = 0;
    while counting.try_wait().expect("a process").is_none() || kills < 3 {
        let mut reader = log(&yard, &id, last).await;
        let until = Instant::now() + Duration::from_millis(700 + 211 * kills);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Ok(Some(event)) = reader.next_within(left).await {
                events.push(event);
            }
        }
        let _ = yard.daemon.child.kill();
        while let Ok(Some(event)) = reader.next_within(Duration::from_secs(5)).await {
            events.push(event);
        }
        last = reader.last;
        yard = yard.reopen();
        kills += 1;
    }
    assert!(counting.wait().expect("an end").success());
    // A new start of the device, and its end.
    yard.until(&id, "running").await;
    yard.call("POST", &format!("/api/v1/emulators/{id}/restart"), None).await;
    yard.until(&id, "running").await;
    yard.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await;
    events.extend(log(&yard, &id, last).await.rest().await);
    events.retain(|event| *event != sse::Event::Comment);

    let end = events.pop().expect("an end");
    assert_eq!(end.data()["reason"], "terminated", "{end:?}");
    let ids: Vec<u64> = events.iter().filter_map(sse::Event::id).collect();
    assert_eq!(ids, (ids[0]..ids[0] + events.len() as u64).collect::<Vec<_>>(), "one after the other");
    let expected: Vec<String> = (1..=LINES).map(|number| format!("number {number}")).collect();
    let of = |source: &str| -> Vec<String> {
        let lines = events.iter().filter(|event| event.data()["source"] == source);
        lines.map(|event| event.line().to_owned()).filter(|line| line.starts_with("number ")).collect()
    };
    assert_eq!(of("logcat"), expected, "after {kills} kills");
    assert_eq!(of("console"), expected, "after {kills} kills");
    assert!(!events.iter().any(|event| event.is("gap")));
    let incarnations = |source: &str| -> Vec<i64> {
        let mut found: Vec<i64> = events
            .iter()
            .filter(|event| event.data()["source"] == source)
            .filter_map(|event| event.data()["incarnation"].as_i64())
            .collect();
        found.dedup();
        found
    };
    assert_eq!(incarnations("logcat"), [1, 2], "one start after the other");
    assert_eq!(incarnations("console"), [1, 2], "one start after the other");
    println!("{} events over {kills} kills", events.len());
}

#[tokio::test]
async fn a_device_lives_through_whatever_happens_to_its_server_and_leaves_nothing_behind() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    let (id, device) = (phone.id.clone(), phone.address.clone());
    yard.until(&id, "running").await;

    // It is the device that it says it is, and keeps what is written to it.
    adb.connect(&device);
    let said = adb.says(&["-s", &device, "shell", "getprop ro.serialno; echo kept > /data/kept; sync"]);
    assert_eq!(said.trim(), phone.serial);
    let live = yard.call("GET", &format!("/api/v1/emulators/{id}"), None).await;
    assert_eq!(live["live"]["properties"]["ro.serialno"], phone.serial.as_str(), "{live}");
    let big = data.path().join("big");
    let bytes: Vec<u8> =
        (0..8u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&big, &bytes).expect("a file");
    let back = data.path().join("back");
    adb.says(&["-s", &device, "push", big.to_str().expect("text"), "/data/big"]);
    adb.says(&["-s", &device, "pull", "/data/big", back.to_str().expect("text")]);
    assert!(std::fs::read(&back).is_ok_and(|copy| copy == bytes), "what came back is not what went in");

    // The doctor finds what is too much and what is missing, and touches neither.
    yard.sound();
    let disks = data.path().join("disks/disks");
    let (stranger, disk) = (disks.join("notes.txt"), std::fs::read_dir(&disks).expect("disks").next());
    let disk = disk.expect("a disk").expect("an entry").path();
    std::fs::write(&stranger, "mine").expect("a file");
    let aside = data.path().join("aside");
    std::fs::rename(&disk, &aside).expect("moved");
    let found = yard.doctor();
    std::fs::rename(&aside, &disk).expect("moved back");
    let told = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!found.status.success() && told.lines().count() == 2, "{found:?}");
    assert!(told.contains("notes.txt") && told.contains(&format!("of emulator {id} is recorded")), "{told}");
    std::fs::remove_file(&stranger).expect("nobody has touched it");

    // The server dies: the device does not notice, nor does an open shell.
    let before = data.processes(&id);
    assert_eq!(before.len(), 1);
    let shell = adb
        .command(&["-s", &device, "shell", "sleep 4; echo still here"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let yard = yard.reopen();
    assert_eq!(data.processes(&id), before);
    assert_eq!(yard.until(&id, "running").await["incarnation"], 1);
    let shell = shell.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&shell.stdout).trim(), "still here");

    // The device dies: the status says so, and a restart mends it, on the same disk and address.
    Command::new("kill").args(["-9", &before[0]]).status().expect("killed");
    // How it ended is known only to the server that started it.
    assert_eq!(yard.until(&id, "failed").await["statusReason"]["code"], "ended");
    yard.call("POST", &format!("/api/v1/emulators/{id}/restart"), None).await;
    assert_eq!(yard.until(&id, "running").await["incarnation"], 2);
    adb.connect(&device);
    assert_eq!(adb.says(&["-s", &device, "shell", "cat /data/kept"]).trim(), "kept");

    // It is stopped dead: unreachable, and there again when it goes on.
    let qemu = data.processes(&id);
    Command::new("kill").args(["-STOP", &qemu[0]]).status().expect("stopped");
    yard.until(&id, "unreachable").await;
    Command::new("kill").args(["-CONT", &qemu[0]]).status().expect("continued");
    yard.until(&id, "running").await;

    // The server dies in the middle of the end: the end is reached all the same, and nothing is left.
    yard.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await;
    let yard = yard.reopen();
    yard.until(&id, "terminated").await;
    assert!(data.processes(&id).is_empty());
    assert_eq!(data.leftovers(), [] as [std::path::PathBuf; 0]);
    yard.sound();
}

/// Asks again and again until there is an answer.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test]
async fn adb_does_everything_on_a_device_that_the_api_has_deployed() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    let device = phone.address.as_str();
    adb.connect(device);
    let on = |arguments: &[&str]| adb.run(&[&["-s", device], arguments].concat());
    let says = |arguments: &[&str]| adb.says(&[&["-s", device], arguments].concat());

    // A shell, with its two outputs and its end.
    let output = on(&["shell", "echo out; echo err >&2; exit 7"]);
    assert_eq!(
        (output.status.code(), output.stdout, output.stderr),
        (Some(7), b"out\n".to_vec(), b"err\n".to_vec())
    );

    // The same at a terminal: `script` makes one, and `timeout` must leave it to adb.
    let words = adb.command(&["-s", device, "shell"]);
    let line: Vec<String> = std::iter::once(words.get_program())
        .chain(words.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut typing = Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--command",
            &line.join(" ").replacen("timeout", "timeout --foreground", 1),
            "/dev/null",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script");
    let (mut keyboard, mut screen) =
        (typing.stdin.take().expect("keys"), typing.stdout.take().expect("a screen"));
    let mut shown = String::new();
    let mut until_shown = |wanted: &str| {
        let mut piece = [0; 1024];
        while !shown.contains(wanted) {
            let length = screen.read(&mut piece).expect("a screen");
            assert!(length > 0, "the shell ended before {wanted:?}: {shown:?}");
            shown += &String::from_utf8_lossy(&piece[..length]);
        }
    };
    // What is typed before the prompt is lost: adb empties the keyboard when it takes over the terminal.
    until_shown("# ");
    keyboard.write_all(b"tty > /dev/null && echo at a terminal $((40 + 2))\n").expect("typed");
    until_shown("at a terminal 42");
    // What says that it sleeps has the terminal already.
    keyboard.write_all(b"sh -c 'echo asleep $((40 + 4)); exec sleep 1000'\n").expect("typed");
    until_shown("asleep 44");
    keyboard.write_all(b"\x03").expect("typed");
    keyboard.write_all(b"echo back $((40 + 3))\n").expect("typed");
    until_shown("back 43");
    keyboard.write_all(b"exit 9\n").expect("typed");
    assert_eq!(typing.wait().expect("an end").code(), Some(9));

    // Large files, both ways.
    let (there, back) = (data.path().join("there"), data.path().join("back"));
    std::fs::write(&there, noise(64 << 20)).expect("a file");
    let sum =
        |output: Vec<u8>| String::from_utf8_lossy(&output).split(' ').next().unwrap_or_default().to_owned();
    let here = sum(Command::new("sha256sum").arg(&there).output().expect("a sum").stdout);
    let pushed = Instant::now();
    assert!(on(&["push", there.to_str().expect("text"), "/data/local/tmp/blob"]).status.success());
    let pulled = Instant::now();
    assert!(on(&["pull", "/data/local/tmp/blob", back.to_str().expect("text")]).status.success());
    println!("64 MiB pushed in {:?}, pulled in {:?}", pulled - pushed, pulled.elapsed());
    assert_eq!(sum(on(&["shell", "sha256sum /data/local/tmp/blob"]).stdout), here);
    assert_eq!(sum(Command::new("sha256sum").arg(&back).output().expect("a sum").stdout), here);

    // An app, and what the log says of it.
    let app = data.path().join("app.apk");
    std::fs::write(&app, apk("com.example.app")).expect("a file");
    assert!(says(&["install", app.to_str().expect("text")]).contains("Success"));
    assert_eq!(adb.shell(device, "pm list packages -3"), "package:com.example.app");
    adb.shell(device, "am start -n com.example.app/.Main; log -t Proof seen");
    assert!(says(&["logcat", "-d", "-s", "ActivityManager:I"]).contains("com.example.app/.Main"));
    assert!(says(&["logcat", "-d", "-v", "raw", "-s", "Proof"]).contains("seen"));
    assert!(says(&["uninstall", "com.example.app"]).contains("Success"));

    // Ports, both ways.
    let mut server = adb.command(&["-s", device, "shell", "echo from the device | nc -l -p 7000"]);
    let mut server = server.stdout(Stdio::null()).spawn().expect("adb");
    let local = says(&["forward", "tcp:0", "tcp:7000"]).trim().to_owned();
    let heard = eventually("the device's server", || {
        let mut text = String::new();
        TcpStream::connect(format!("127.0.0.1:{local}")).ok()?.read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(heard, "from the device\n");
    server.wait().expect("adb");
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    says(&["reverse", "tcp:7001", &format!("tcp:{}", service.local_addr().expect("an address").port())]);
    let host =
        std::thread::spawn(move || service.accept().expect("a connection").0.write_all(b"from the host\n"));
    // ADB knows no half-closed connections, so the input of `nc` stays open until it has ended.
    let mut client = adb.command(&["-s", device, "shell", "nc 127.0.0.1 7001"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("adb");
    let keyboard = client.stdin.take();
    let output = client.wait_with_output().expect("adb");
    drop(keyboard);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from the host\n");
    host.join().expect("a thread").expect("written");

    yard.call("DELETE", &format!("/api/v1/emulators/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
    assert!(data.processes("").is_empty());
}
