//! The ADB daemon as the real `adb` meets it, without a machine around it.

mod world;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;
use world::{Adb, Agent, apk, eventually, free_port, noise, open_device};

#[test]
fn a_host_whose_key_was_given_gets_in_and_a_foreign_one_does_not() {
    let (mut known, mut foreign) = (Adb::new(), Adb::new());
    let agent = Agent::start(&json!({"serial": "TEST-1", "adb": {"access": "keys", "keys": [known.key()]}}));

    let (welcome, refusal) = (known.connect(agent.port), foreign.connect(agent.port));

    assert!(welcome.starts_with("connected to"), "{welcome}");
    assert!(refusal.contains("failed to authenticate"), "{refusal}");
    assert_eq!(known.shell("getprop ro.serialno"), "TEST-1");
    assert!(!foreign.output(&["shell", "true"]).status.success());
}

#[test]
fn without_keys_nobody_gets_in() {
    let mut adb = Adb::new();
    let agent = Agent::start(&json!({}));

    let said = adb.connect(agent.port);

    assert!(said.contains("failed to authenticate"), "{said}");
}

#[test]
fn a_shell_tells_its_streams_apart_and_ends_with_the_command_s_code() {
    let (_agent, adb) = open_device();

    let output = adb.output(&["shell", "echo out; echo err >&2; exit 42"]);

    assert_eq!(output.status.code(), Some(42));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (b"out\n".as_slice(), b"err\n".as_slice())
    );
}

#[test]
fn a_shell_killed_by_a_signal_says_so() {
    let (_agent, adb) = open_device();

    let output = adb.output(&["shell", "kill -TERM $$"]);

    assert_eq!(output.status.code(), Some(128 + 15));
}

#[test]
fn what_is_typed_reaches_the_command_and_its_end_too() {
    let (_agent, adb) = open_device();
    let mut child =
        adb.on_device(&["shell", "wc -c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("adb");

    child.stdin.take().expect("input").write_all(&noise(300_000)).expect("written");

    let output = child.wait_with_output().expect("adb");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000");
}

#[test]
fn binary_output_comes_through_unchanged() {
    let (agent, adb) = open_device();
    let bytes = noise(1_000_000);
    fs::write(agent.root().join("data/local/tmp/f"), &bytes).expect("a file");

    let output = adb.output(&["exec-out", "cat data/local/tmp/f"]);

    assert!(output.stdout == bytes);
}

#[test]
fn a_terminal_knows_its_size_and_ctrl_c_ends_only_the_command() {
    let (_agent, adb) = open_device();
    let terminal =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("a name").into_string().expect("text");
    let size = Winsize { ws_row: 33, ws_col: 111, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("a size");
    let other_end = || File::options().read(true).write(true).open(&name).expect("its other end");
    let mut command = adb.on_device(&["shell"]);
    let mut child = command.stdin(other_end()).stdout(other_end()).stderr(other_end()).spawn().expect("adb");
    // The command keeps its copies of the other end, and the screen would never go dark.
    drop(command);
    let mut keyboard = File::from(terminal);
    let screen = keyboard.try_clone().expect("a screen");
    let (sender, shown) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pieces = std::iter::repeat_with(|| {
            let mut buffer = [0; 4096];
            let length = (&screen).read(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        });
        pieces.map_while(|piece| piece).try_for_each(|piece| sender.send(piece))
    });
    let wait_for = |wanted: &str| {
        let mut seen = String::new();
        while !seen.contains(wanted) {
            let piece = shown.recv_timeout(Duration::from_secs(20));
            seen += &piece.unwrap_or_else(|_| panic!("waited for {wanted:?}, saw {seen:?}"));
        }
    };

    // What is typed before the prompt is lost: adb empties the keyboard when it takes over the terminal.
    wait_for("# ");
    keyboard.write_all(b"stty size\n").expect("typed");
    wait_for("33 111");
    keyboard.write_all(b"echo go$((1 + 1)); sleep 1000\n").expect("typed");
    wait_for("go2");
    std::thread::sleep(Duration::from_millis(300));
    keyboard.write_all(b"\x03").expect("typed");
    keyboard.write_all(b"echo still-$((40 + 2))\n").expect("typed");
    wait_for("still-42");
    keyboard.write_all(b"exit 9\n").expect("typed");

    assert_eq!(child.wait().expect("adb").code(), Some(9));
}

#[test]
fn pushed_files_come_back_the_same_with_mode_and_time() {
    let (agent, adb) = open_device();
    let (there, back) = (adb.path("there"), adb.path("back"));
    fs::create_dir_all(there.join("deep/er")).expect("folders");
    fs::write(there.join("large"), noise(20_000_000)).expect("a file");
    fs::write(there.join("deep/er/empty"), "").expect("a file");
    fs::write(there.join("script"), "#!/bin/sh\n").expect("a file");
    fs::set_permissions(there.join("script"), PermissionsExt::from_mode(0o755)).expect("a mode");

    adb.run(&["push", &there.display().to_string(), "/data/local/tmp/"]);
    adb.run(&["pull", "-a", "/data/local/tmp/there", &back.display().to_string()]);

    for name in ["large", "deep/er/empty", "script"] {
        assert!(
            fs::read(there.join(name)).expect("a file") == fs::read(back.join(name)).expect("a file"),
            "{name}"
        );
    }
    let pushed = fs::metadata(agent.root().join("data/local/tmp/there/script")).expect("a file");
    let original = fs::metadata(there.join("script")).expect("a file");
    assert_eq!(pushed.permissions().mode() & 0o777, 0o755);
    let seconds =
        |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    assert_eq!(seconds(pushed.modified().expect("a time")), seconds(original.modified().expect("a time")));
}

#[test]
fn pulling_what_is_not_there_is_an_error_and_the_next_pull_works() {
    let (agent, adb) = open_device();
    fs::write(agent.root().join("data/local/tmp/f"), "x").expect("a file");

    let output = adb.output(&["pull", "/data/local/tmp/absent", "/tmp/"]);

    assert!(!output.status.success());
    adb.run(&["pull", "/data/local/tmp/f", &adb.path("f").display().to_string()]);
    assert_eq!(fs::read(adb.path("f")).expect("a file"), b"x");
}

#[test]
fn an_installed_package_is_listed_started_and_removed() {
    let (agent, adb) = open_device();
    let file = adb.path("app.apk");
    fs::write(&file, apk("com.example.app")).expect("a file");

    for how in [["install", "-r"], ["install", "--no-streaming"]] {
        let said = adb.run(&[how[0], how[1], &file.display().to_string()]);
        assert!(said.contains("Success"), "{said}");
    }
    assert_eq!(adb.shell("pm list packages -3"), "package:com.example.app");
    assert_eq!(adb.shell("pm path com.example.app"), "package:/data/app/com.example.app/base.apk");
    assert!(
        fs::read(agent.root().join("data/app/com.example.app/base.apk")).expect("a file")
            == apk("com.example.app")
    );

    let started = adb.shell("am start -n com.example.app/.Main");
    assert!(started.contains("Starting: Intent { cmp=com.example.app/.Main }"), "{started}");
    assert!(
        adb.run(&["logcat", "-d", "-s", "ActivityManager"]).contains("START u0 {cmp=com.example.app/.Main}")
    );
    assert!(adb.shell("dumpsys activity").contains("com.example.app/.Main"));

    assert!(adb.run(&["uninstall", "com.example.app"]).contains("Success"));
    assert_eq!(adb.shell("pm list packages -3"), "");
    assert!(!adb.output(&["shell", "am start -n com.example.app/.Main"]).status.success());
}

#[test]
fn what_is_no_apk_is_not_installed_and_leaves_nothing() {
    let (agent, adb) = open_device();
    let file = adb.path("fake.apk");
    fs::write(&file, noise(100_000)).expect("a file");

    let output = adb.output(&["install", &file.display().to_string()]);

    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("INSTALL_PARSE_FAILED_NOT_APK"), "{said}");
    assert_eq!(fs::read_dir(agent.root().join("data/app")).expect("a folder").count(), 0);
}

#[test]
fn logcat_shows_what_the_filter_lets_through() {
    let (_agent, adb) = open_device();
    adb.shell("log -p w -t Radio one; log -p d -t Radio two; log -t Other three; log -b events -t Ev four");

    assert_eq!(lines(&adb.run(&["logcat", "-d", "-v", "brief", "Radio:I", "*:S"])), ["W/Radio   : one"]);
    assert_eq!(lines(&adb.run(&["logcat", "-d", "-v", "tag", "-b", "events"])), ["I/Ev      : four"]);
    assert!(adb.run(&["logcat", "-g"]).contains("main: ring buffer is 256 KiB"));

    adb.run(&["logcat", "-c"]);

    assert_eq!(lines(&adb.run(&["logcat", "-d", "-b", "main"])), [""; 0]);
    assert!(!adb.output(&["shell", "logcat -b nope"]).status.success());
}

/// Entries without the lines that begin a buffer and without the number of a process.
fn lines(text: &str) -> Vec<String> {
    let entries = text.lines().filter(|line| !line.starts_with("-----") && !line.is_empty());
    entries
        .map(|line| match (line.find('('), line.find("): ")) {
            (Some(from), Some(to)) => format!("{}: {}", &line[..from], &line[to + 3..]),
            _ => line.to_owned(),
        })
        .collect()
}

#[test]
fn logcat_follows_and_ends_with_its_reader() {
    let (_agent, adb) = open_device();
    let mut reader =
        adb.on_device(&["logcat", "-v", "raw", "-s", "Follow"]).stdout(Stdio::piped()).spawn().expect("adb");
    let mut output = BufReader::new(reader.stdout.take().expect("output")).lines();

    adb.shell("log -t Follow first");
    assert!(output.next().expect("a line").expect("text").starts_with("--------- beginning"));
    assert_eq!(output.next().expect("a line").expect("text"), "first");
    adb.shell("log -t Follow second");
    assert_eq!(output.next().expect("a line").expect("text"), "second");

    reader.kill().expect("a process");
    reader.wait().expect("a process");
}

#[test]
fn forwarded_connections_reach_the_device() {
    let (_agent, adb) = open_device();
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = service.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in service.incoming().flatten() {
            let (mut from, mut to) = (stream.try_clone().expect("a socket"), stream);
            let _ = std::io::copy(&mut from, &mut to);
        }
    });
    let local = adb.run(&["forward", "tcp:0", &format!("tcp:{port}")]);

    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", local.trim())).expect("a connection");
    let sent = noise(1_000_000);
    let mut writer = stream.try_clone().expect("a socket");
    let thread = std::thread::spawn(move || writer.write_all(&sent));
    let mut back = vec![0; 1_000_000];
    stream.read_exact(&mut back).expect("an echo");

    thread.join().expect("a thread").expect("written");
    assert!(back == noise(1_000_000));
}

#[test]
fn reversed_connections_reach_the_host_until_they_are_removed() {
    let (_agent, adb) = open_device();
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host_port = service.local_addr().expect("an address").port();
    let device_port = free_port();
    let (device, host) = (format!("tcp:{device_port}"), format!("tcp:{host_port}"));
    adb.run(&["reverse", &device, &host]);
    assert!(adb.run(&["reverse", "--list"]).contains(&format!("{device} {host}")));
    assert!(!adb.output(&["reverse", "--no-rebind", &device, &host]).status.success());

    let mut from_device = TcpStream::connect(("127.0.0.1", device_port)).expect("a connection");
    from_device.write_all(b"hello host").expect("written");
    let mut heard = [0; 10];
    service.accept().expect("a connection").0.read_exact(&mut heard).expect("text");

    assert_eq!(&heard, b"hello host");
    adb.run(&["reverse", "--remove-all"]);
    eventually("the listener ends", || TcpStream::connect(("127.0.0.1", device_port)).err());
}

#[test]
fn what_the_host_sends_before_it_hangs_up_at_once_arrives() {
    let (_agent, adb) = open_device();
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free_port();
    let host_port = service.local_addr().expect("an address").port();
    adb.run(&["reverse", &format!("tcp:{port}"), &format!("tcp:{host_port}")]);
    std::thread::spawn(move || {
        for stream in service.incoming() {
            stream.expect("a connection").write_all(b"short").expect("written");
        }
    });

    for attempt in 0..200 {
        let mut heard = String::new();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.read_to_string(&mut heard).expect("text");
        assert_eq!(heard, "short", "at attempt {attempt}");
    }
}

#[test]
fn a_screenshot_is_a_picture_in_both_forms() {
    let (agent, adb) = open_device();

    let picture = adb.output(&["exec-out", "screencap -p"]).stdout;
    let raw = adb.output(&["exec-out", "screencap"]).stdout;
    adb.shell("screencap /data/local/tmp/s.png");

    let mut reader = png::Decoder::new(std::io::Cursor::new(picture)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    assert_eq!((info.width, info.height), (720, 1280));
    let colours: std::collections::BTreeSet<_> = pixels.chunks_exact(3).collect();
    assert!(colours.len() > 20, "only {} colours", colours.len());
    assert_eq!(raw.len(), 16 + 720 * 1280 * 4);
    assert_eq!(adb.shell("wm size"), "Physical size: 720x1280");
    assert!(fs::read(agent.root().join("data/local/tmp/s.png")).expect("a file").starts_with(b"\x89PNG"));
}

#[test]
fn settings_packages_and_persistent_properties_outlive_a_restart_and_identity_does_not() {
    let open = json!({"access": "open"});
    let (agent, adb) = open_device();
    let file = adb.path("app.apk");
    fs::write(&file, apk("com.example.app")).expect("a file");
    adb.run(&["install", &file.display().to_string()]);
    adb.shell("setprop persist.a 1; setprop debug.a 1; settings put global b 2");

    let agent = agent.restarted(&json!({"serial": "TEST-2", "adb": open}));

    let mut adb = Adb::new();
    adb.connect(agent.port);
    assert_eq!(adb.shell("getprop persist.a; getprop debug.a; settings get global b"), "1\n\n2");
    assert_eq!(adb.shell("getprop ro.serialno"), "TEST-2");
    assert_eq!(adb.shell("pm list packages -3"), "package:com.example.app");
}
