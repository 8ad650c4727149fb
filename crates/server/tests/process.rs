//! The real binary as its users meet it: start, sign in, kill, restart, several on one database.

mod daemon;
mod world;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use daemon::{Daemon, client, free_port, paddockd, wait_for};
use serde_json::{Value, json};
use world::new_postgres_database;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output: Output =
        paddockd().args(arguments).envs(environment.iter().copied()).output().expect("output");
    assert!(!output.status.success(), "{arguments:?} was accepted");
    text(&output.stderr)
}

#[test]
fn the_first_start_makes_an_admin_whose_password_is_shown_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    // `script` gives it a terminal; everything else is a log, and no log may hold a password.
    let start = || {
        let address = format!("127.0.0.1:{}", free_port());
        let pid = folder.path().join("pid");
        let line = format!(
            "echo $$ > {}; exec {} --listen {address} --log-level warn --data {}",
            pid.display(),
            env!("CARGO_BIN_EXE_paddockd"),
            data.display()
        );
        let log = folder.path().join("typescript");
        let mut child = Command::new("script")
            .args(["-qfec", &line])
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("script");
        wait_for(&address);
        std::thread::sleep(Duration::from_millis(300));
        let shown = std::fs::read_to_string(&log).expect("what was shown");
        // Not left to the end of its terminal, which whoever started this may have told it to ignore.
        let pid = std::fs::read_to_string(&pid).expect("a pid");
        assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().expect("kill").success());
        child.wait().expect("gone");
        shown
    };

    let shown = start();
    let password = std::fs::read_to_string(data.join("admin-password")).expect("the password's file");
    let password = password.trim();
    assert!(shown.contains(password) && password.len() >= 16, "{shown:?}");
    let mode = |path: PathBuf| std::fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!((mode(data.join("admin-password")), mode(data.clone())), (0o600, 0o700));
    let database = std::fs::read(data.join("paddock.db")).expect("the database");
    assert!(
        !database.windows(password.len()).any(|window| window == password.as_bytes()),
        "stored in the clear"
    );
    assert!(!start().contains(password), "shown twice");
}

#[test]
fn the_password_is_shown_to_no_log_and_files_are_closed_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("an open folder");
    let mut child = paddockd()
        .args(["--listen", "127.0.0.1:0", "--log-level", "warn", "--data"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
    child.kill().expect("killed");
    child.wait().expect("gone");
    let password =
        std::fs::read_to_string(folder.path().join("admin-password")).expect("the password's file");
    assert!(line.contains("admin-password") && !line.contains(password.trim()), "{line:?}");
    for entry in std::fs::read_dir(folder.path()).expect("files") {
        let entry = entry.expect("a file");
        let facts = entry.metadata().expect("metadata");
        let closed = if facts.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(facts.permissions().mode() & 0o777, closed, "{}", entry.path().display());
    }
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let stderr = refused(&["--data", folder.path().to_str().expect("text"), "--listen", &address], &[]);
    assert!(stderr.contains("--listen"), "{stderr}");
    assert!(!folder.path().join("admin-password").exists());
    assert!(!folder.path().join("paddock.db").exists());
}

/// As `make run` does it, the variables of the build included.
#[test]
fn the_run_script_starts_the_server_and_says_what_to_do_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bin = Path::new(env!("CARGO_BIN_EXE_paddockd")).parent().expect("a folder");
    let mut child = Command::new(root.join("scripts/run"))
        .arg(bin)
        .arg(folder.path().join("data"))
        .arg(format!("127.0.0.1:{}", free_port()))
        .arg(root.join("image"))
        .envs([
            // What real devices do is tried elsewhere.
            ("PADDOCK_DEVICES_SIMULATED", "true"),
            ("BUILD_COMMIT", "abc"),
            ("BUILD_TIME", "now"),
            ("CACHE", "/tmp"),
            ("PADDOCK_SERVICE_HOST", "10.0.0.1"),
            ("PADDOCK_PORT", "tcp://10.0.0.1:80"),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let printed: Vec<String> = lines
        .by_ref()
        .map(|line| line.expect("text"))
        .take_while(|line| !line.contains("Stop with Ctrl-C"))
        .collect();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    child.wait().expect("gone");
    let printed = printed.join("\n");
    for hint in [
        "Paddock serves at http://127.0.0.1:",
        "admin token --data",
        "admin-password",
        "paddock auth login",
        "adb connect 127.80.0.1:5555",
        "emulator create",
        "/-/openapi/schema",
    ] {
        assert!(printed.contains(hint), "{hint} is not in\n{printed}");
    }
}

#[tokio::test]
async fn the_break_glass_token_opens_the_api() {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(folder.path(), &[]);
    let answer = client()
        .get(daemon.url("/api/v1/tenants"))
        .bearer_auth(daemon.token())
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);

    let stderr =
        refused(&["admin", "token", "--data", folder.path().join("other").to_str().expect("text")], &[]);
    assert!(stderr.contains("there is no database in"), "{stderr}");
    assert!(!folder.path().join("other").exists(), "a mistyped folder is not made");
}

#[test]
fn a_setting_that_cannot_be_used_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("paddockd.toml");
    std::fs::write(&file, "[limits]\nbodybytes = 1\n").expect("a file");
    let file = file.to_str().expect("text");
    let broken = folder.path().join("broken.toml");
    std::fs::write(&broken, "[database]\nurl = \"postgres://root:hunter2@db\n").expect("a file");
    let broken = broken.to_str().expect("text");
    for (arguments, environment, expected) in [
        (vec!["--config", file], vec![], "limits.bodybytes"),
        (vec!["--config", broken], vec![], "broken.toml: line 2: "),
        (vec!["--log-level", "inof"], vec![], "log.level (flag --log-level)"),
        (vec![], vec![("PADDOCK_LISTEN", "nowhere")], "listen (environment, PADDOCK_LISTEN)"),
        (vec![], vec![("PADDOCK_LISTENS", "127.0.0.1:1")], "PADDOCK_LISTENS"),
        (vec!["--log-format", "xml"], vec![], "auto, human or json"),
        (
            vec!["--database-url", "mysql://root:hunter2@db"],
            vec![],
            "postgres://user:password@host:port/database",
        ),
        (vec!["--tls-key", "key.pem"], vec![], "tls.certificate and tls.key belong together"),
    ] {
        let stderr = refused(&arguments, &environment);
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}

#[test]
fn config_says_where_each_value_comes_from() {
    let output = paddockd()
        .args(["config", "--limits-burst", "7", "--database-url", "postgres://ada:hunter2@db/paddock"])
        .env("PADDOCK_LOG_LEVEL", "debug")
        .output()
        .expect("output");
    let printed = text(&output.stdout);
    for line in [
        "limits.burst = \"7\"  # flag --limits-burst",
        "log.level = \"debug\"  # environment, PADDOCK_LOG_LEVEL",
        "listen = \"127.0.0.1:8080\"  # default",
        "database.url = \"postgres://***\"  # flag --database-url",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
    assert!(!printed.contains("hunter2"));
}

#[tokio::test]
async fn one_data_folder_has_one_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let _daemon = Daemon::start(folder.path(), &[]);
    let stderr = refused(&["--data", folder.path().to_str().expect("text"), "--listen", "127.0.0.1:0"], &[]);
    assert!(stderr.contains("another paddockd uses the data folder"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let rounds = if std::env::var_os("TEST_LONG").is_some() { 200 } else { 20 };
    let folder = tempfile::tempdir().expect("a folder");
    let http = client();
    let flags = ["--limits-burst", "1000000", "--limits-requests-per-minute", "10000000"];
    let mut acknowledged: Vec<String> = Vec::new();
    let created = Arc::new(Mutex::new(Vec::new()));
    for round in 0..rounds {
        let mut daemon = Daemon::start(folder.path(), &flags);
        let token = daemon.token();
        let count = Arc::new(AtomicUsize::new(0));
        let writers = (0..64).map(|writer| {
            let (http, url, token) = (http.clone(), daemon.url("/api/v1/tenants"), token.clone());
            let (count, created) = (count.clone(), created.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let body = json!({ "name": format!("t-{round}-{writer}-{number}") });
                    match http.post(&url).bearer_auth(&token).json(&body).send().await {
                        Ok(answer) if answer.status() == 201 => match answer.json::<Value>().await {
                            Ok(tenant) => created
                                .lock()
                                .expect("a lock")
                                .push(tenant["id"].as_str().expect("an id").to_owned()),
                            Err(_) => return,
                        },
                        Ok(answer) => panic!("{}", answer.status()),
                        Err(_) => return,
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let enough = 64 + round * 7;
        let started = Instant::now();
        while count.load(Ordering::Relaxed) < enough {
            assert!(started.elapsed() < Duration::from_secs(30), "too slow: {count:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        daemon.kill();
        for writer in writers {
            writer.await.expect("a writer");
        }
        acknowledged.append(&mut created.lock().expect("a lock"));
    }

    let daemon = Daemon::start(folder.path(), &flags);
    let (token, mut stored, mut cursor) = (daemon.token(), std::collections::HashSet::new(), String::new());
    loop {
        let url = daemon.url(&format!("/api/v1/tenants?limit=200{cursor}"));
        let page: Value =
            http.get(url).bearer_auth(&token).send().await.expect("an answer").json().await.expect("a page");
        stored.extend(
            page["items"]
                .as_array()
                .expect("items")
                .iter()
                .map(|item| item["id"].as_str().expect("an id").to_owned()),
        );
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let lost: Vec<&String> = acknowledged.iter().filter(|id| !stored.contains(*id)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged tenants are lost", lost.len(), acknowledged.len());
    assert!(acknowledged.len() >= rounds * 64);
    println!("{} acknowledged, {} stored, none lost in {rounds} kills", acknowledged.len(), stored.len());
}

#[tokio::test]
async fn of_two_servers_one_runs_the_loops_and_the_other_takes_over() {
    let database = new_postgres_database().await;
    let flags = ["--database-url", &database, "--loops-lease-seconds", "6"];
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut daemons = [Daemon::start(one.path(), &flags), Daemon::start(two.path(), &flags)];
    let http = client();
    let token = daemons[0].token();

    let created = http
        .post(daemons[0].url("/api/v1/tenants"))
        .bearer_auth(&token)
        .json(&json!({ "name": "acme" }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(created.status(), 201);
    let path = created.headers()["location"].to_str().expect("text").to_owned();
    assert_eq!(
        http.get(daemons[1].url(&path)).bearer_auth(&token).send().await.expect("an answer").status(),
        200
    );

    let leads = async |daemon: &Daemon| {
        let report = http
            .get(daemon.url("/-/readyz?verbose"))
            .send()
            .await
            .expect("an answer")
            .text()
            .await
            .expect("text");
        report.contains("this replica runs the loops")
    };
    let started = Instant::now();
    let leader = loop {
        match (leads(&daemons[0]).await, leads(&daemons[1]).await) {
            (true, false) => break 0,
            (false, true) => break 1,
            (true, true) => panic!("both lead"),
            (false, false) => assert!(started.elapsed() < Duration::from_secs(30), "nobody leads"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    daemons[leader].kill();
    let (killed, other) = (Instant::now(), &daemons[1 - leader]);
    while !leads(other).await {
        // The lease, the third of it after which the other looks again, and what a busy machine takes.
        assert!(killed.elapsed() < Duration::from_secs(6 + 2 + 5), "nobody has taken over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(http.get(other.url(&path)).bearer_auth(&token).send().await.expect("an answer").status(), 200);

    // A third, given the lease by a leader that goes in peace, does not have to wait for it to run out.
    let third_folder = tempfile::tempdir().expect("a folder");
    let third = Daemon::start(third_folder.path(), &flags);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!leads(&third).await);
    other.signal("-TERM");
    let asked = Instant::now();
    while !leads(&third).await {
        assert!(asked.elapsed() < Duration::from_secs(5), "the lease was not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_server_without_a_place_left_says_so_and_lets_the_next_one_in_when_one_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let data = folder.path().join("data");
    let server = Daemon::start_talkative(&data, &["--limits-connections", "2"], &log);
    let ask = |stream: &mut std::net::TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a time limit");
        stream.write_all(b"GET /-/alivez HTTP/1.1\r\nHost: us\r\n\r\n").expect("sent");
        stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0)
    };
    let connect = || std::net::TcpStream::connect(&server.address).expect("a connection");
    let (mut first, mut second, mut third) = (connect(), connect(), connect());
    assert!(ask(&mut first) && ask(&mut second));
    assert!(!ask(&mut third), "there is no place for it");
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains("limits.connections allows"), "{said}");

    drop(first);

    assert!(third.read(&mut [0; 1024]).is_ok_and(|length| length > 0), "what it asked waited with it");
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_finishes_what_is_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), &["--shutdown-delay-seconds", "1"]);
    let token = daemon.token();
    let http = client();
    // A body that arrives slowly: the request is under way when the signal comes.
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Result<&'static str, std::io::Error>>();
    let mut receiver = receiver;
    let body =
        reqwest::Body::wrap_stream(futures_util::stream::poll_fn(move |context| receiver.poll_recv(context)));
    let request = http
        .post(daemon.url("/api/v1/tenants"))
        .bearer_auth(&token)
        .header("content-type", "application/json")
        .body(body);
    sender.send(Ok("{\"name\":")).expect("sent");
    let answer = tokio::spawn(request.send());
    tokio::time::sleep(Duration::from_millis(200)).await;

    daemon.signal("-TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let ready = http.get(daemon.url("/-/readyz?verbose")).send().await.expect("still served");
    assert_eq!(ready.status(), 503);
    assert!(ready.text().await.expect("text").contains("shutting down"));
    tokio::time::sleep(Duration::from_millis(1200)).await;
    sender.send(Ok("\"acme\"}")).expect("sent");
    drop(sender);

    assert_eq!(answer.await.expect("joined").expect("an answer").status(), 201);
    let started = Instant::now();
    while daemon.child.try_wait().expect("a status").is_none() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(daemon.child.wait().expect("a status").success());
}

#[tokio::test]
async fn systemd_is_told_when_the_server_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut child = paddockd()
        .args(["--listen", "127.0.0.1:0", "--log-level", "warn", "--data"])
        .arg(folder.path().join("data"))
        .env("NOTIFY_SOCKET", folder.path().join("notify"))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let heard = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        text(&buffer[..length])
    };
    assert!(heard().contains("READY=1"));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill").success());
    assert!(heard().contains("STOPPING=1"));
    assert!(child.wait().expect("a status").success());
}

#[tokio::test]
async fn tls_is_served_with_a_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "1",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            &file("key.pem"),
            "-out",
            &file("cert.pem"),
        ])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let daemon = Daemon::start(
        &folder.path().join("data"),
        &["--tls-certificate", &file("cert.pem"), "--tls-key", &file("key.pem")],
    );

    let curl = |arguments: &[&str]| {
        let url = format!("https://{}/-/alivez", daemon.address);
        Command::new("curl")
            .args(["-si", "--max-time", "10", "--cacert", &file("cert.pem")])
            .args(arguments)
            .arg(url)
            .output()
            .expect("curl")
    };
    for version in ["--http1.1", "--http2"] {
        let answer = text(&curl(&[version]).stdout).to_lowercase();
        assert!(answer.contains(" 200") && answer.ends_with("ok"), "{version}: {answer}");
        assert!(answer.contains("strict-transport-security:"), "{answer}");
    }
    let http = client();
    assert!(
        http.get(daemon.url("/-/alivez")).send().await.is_err(),
        "plain HTTP is not served on a TLS port"
    );

    let stderr = refused(
        &[
            "--data",
            &file("other"),
            "--listen",
            "127.0.0.1:0",
            "--tls-certificate",
            &file("none.pem"),
            "--tls-key",
            &file("key.pem"),
        ],
        &[],
    );
    assert!(stderr.contains("tls.certificate"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_is_verified_while_the_server_writes_it() {
    for database in [String::new(), new_postgres_database().await] {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = ["--database-url", &database, "--limits-requests-per-minute", "1000000"];
        let daemon = Daemon::start(folder.path(), &flags);
        let (http, token, url) = (client(), daemon.token(), daemon.url("/api/v1/tenants"));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let written = Arc::new(AtomicUsize::new(0));
        let writer = tokio::spawn({
            let (stop, written) = (stop.clone(), written.clone());
            async move {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let body = json!({ "name": format!("acme-{number}") });
                    let made = http.post(&url).bearer_auth(&token).json(&body).send().await;
                    written
                        .fetch_add(usize::from(made.expect("an answer").status() == 201), Ordering::Relaxed);
                }
            }
        });
        let verify = async || {
            let mut command = paddockd();
            command.args(["audit", "verify", "--data"]).arg(folder.path());
            command.args(["--database-url", &database]);
            tokio::task::spawn_blocking(move || command.output().expect("output")).await.expect("a thread")
        };
        // However busy the machine is: until enough was written beside it.
        let mut runs = 0;
        while runs < 5 || written.load(Ordering::Relaxed) <= 5 && runs < 200 {
            let output = verify().await;
            assert!(output.status.success(), "{output:?}");
            assert!(text(&output.stdout).contains("as they were written"), "{output:?}");
            runs += 1;
        }
        stop.store(true, Ordering::Relaxed);
        writer.await.expect("a writer");
        assert!(written.load(Ordering::Relaxed) > 5, "nothing was written meanwhile");
        if database.is_empty() {
            continue;
        }
        let (client, connection) =
            tokio_postgres::connect(&database, tokio_postgres::NoTls).await.expect("a server");
        tokio::spawn(connection);
        client.batch_execute("DELETE FROM audit_chains WHERE chain = ''").await.expect("removed");
        let output = verify().await;
        assert!(!output.status.success(), "{output:?}");
        assert!(text(&output.stdout).contains("the installation: "), "{output:?}");
        assert!(text(&output.stdout).contains("CHANGED at number 1"), "{output:?}");
    }
}

#[test]
fn a_connection_is_carried_to_a_socket_until_either_side_ends() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    // Deeper than a socket's path may be; nobody needs a setting, and nothing is ever printed.
    let folder = tempfile::tempdir().expect("a folder");
    let deep = folder.path().join("a folder, of 'many' letters ".repeat(5));
    std::fs::create_dir(&deep).expect("a folder");
    let socket = deep.join("vehicle.sock");
    let connect = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddockd"));
        command.env_clear().arg("connect").arg(&socket).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("paddockd")
    };
    let absent = connect().wait_with_output().expect("an end");
    assert_eq!((text(&absent.stdout), text(&absent.stderr)), (String::new(), String::new()));

    // Bound by a short name, as its path is too long.
    let bound = folder.path().join("s");
    let listener = UnixListener::bind(&bound).expect("a socket");
    std::fs::rename(&bound, &socket).expect("moved");
    let started = Instant::now();
    let mut child = connect();
    let (mut car, _) = listener.accept().expect("a connection");
    println!("connected after {:?}", started.elapsed());
    let mut to = child.stdin.take().expect("input");
    to.write_all(b"question").expect("written");
    let mut question = [0; 8];
    car.read_exact(&mut question).expect("carried");
    car.write_all(&[7; 300_000]).expect("written");
    drop(car);
    // The car has ended, and so has the connection, although its other side is still open.
    let ended = child.wait_with_output().expect("an end");
    assert_eq!((&question, ended.stdout.len(), ended.stderr.len()), (b"question", 300_000, 0));

    let mut child = connect();
    let (mut car, _) = listener.accept().expect("a connection");
    drop(child.stdin.take());
    assert_eq!(car.read(&mut question).expect("an end"), 0);
    child.wait().expect("an end");
}
