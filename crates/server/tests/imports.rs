//! Disk images from outside over HTTP: announced, sent, refused, broken off, given up; on simulated disks and both databases, then for real.

mod daemon;
mod world;
mod yard;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use paddock_engine::reconcile::LOOPS;
use paddock_model::drivers::disk_pools::DiskPool;
use serde_json::{Value, json};
use world::{Answer, BOTH, On, World};
use yard::{Adb, Data, Phone, Yard, images, noise};

const SNAPSHOTS: &str = "/api/v1/snapshots";

fn checksum(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    let digits: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// A world with a tenant, and something that an image can be like.
async fn with_a_tenant(on: On, flags: &[&str]) -> (World, String, String) {
    let world = World::with(on, flags, LOOPS).await;
    let acme = world.tenant("acme").await;
    let like = world.snapshot().await;
    (world, acme, like)
}

async fn announce(world: &World, token: &str, tenant: &str, like: &str, name: &str, bytes: &[u8]) -> Answer {
    let import = json!({ "tenantId": tenant, "like": like, "checksum": checksum(bytes) });
    let body = json!({ "name": name, "import": import });
    world.call_as(token, "POST", SNAPSHOTS, Some(body)).await
}

async fn send(world: &World, token: &str, name: &str, bytes: &[u8]) -> Answer {
    let request = world.anonymous("PUT", &format!("{SNAPSHOTS}/{name}/content")).bearer_auth(token);
    let request = request.header("content-type", "application/octet-stream").body(bytes.to_vec());
    world.send(request).await
}

/// The beginning of an upload, by hand: so many bytes are announced.
fn begin(address: &str, token: &str, name: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    let head = format!(
        "PUT {SNAPSHOTS}/{name}/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

fn answer(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if text.contains("requestId") || text.contains("\"useCount\"") {
            break;
        }
    }
    text
}

async fn in_pool(world: &World) -> usize {
    world.simulation.pool.received().await.expect("a list").len()
}

#[tokio::test]
async fn an_image_is_announced_sent_verified_and_deployed() {
    for on in BOTH {
        let (world, acme, like) = with_a_tenant(on, &[]).await;
        let (token, image) = (world.token.clone(), noise(3_000_000));
        let made = announce(&world, &token, &acme, &like, "with-maps", &image).await.expect(202);
        assert_eq!(made.header("location"), "/api/v1/snapshots/with-maps");
        let made = made.json();
        assert_eq!((&made["state"], &made["deployable"]), (&json!("creating"), &json!(false)));
        assert_eq!((&made["origin"], &made["trust"]), (&json!({ "kind": "import" }), &json!("internal")));
        assert_eq!((&made["parent"], &made["depth"]), (&Value::Null, &json!(1)));

        let sent = send(&world, &token, "with-maps", &image).await.expect(202);
        assert!(!sent.header("etag").is_empty());
        let ready = world.until_snapshot("with-maps", "ready").await;
        assert_eq!(ready["checksum"], checksum(&image));
        assert_eq!(ready["verifiedBoot"]["adb"], true);
        assert_eq!(in_pool(&world).await, 0, "it was taken, not copied");
        let again = send(&world, &token, "with-maps", &image).await.expect(409);
        assert_eq!(again.code(), "invalid_state");

        let body = json!({ "tenantId": acme, "snapshot": "with-maps" });
        let emulator = world.call("POST", "/api/v1/emulators", Some(body)).await.expect(201).id();
        world.until(&emulator, "running").await;
        let trail = world.call("GET", &format!("/api/v1/audit?tenantId={acme}"), None).await.expect(200).text;
        assert!(trail.contains("snapshots.create") && trail.contains("snapshots.upload"), "{trail}");
    }
}

#[tokio::test]
async fn what_is_not_as_announced_is_refused_and_leaves_nothing() {
    for on in BOTH {
        let (world, acme, like) = with_a_tenant(on, &["--snapshots-upload-bytes", "2000000"]).await;
        let (token, image) = (world.token.clone(), noise(1_000_000));
        announce(&world, &token, &acme, &like, "wrong", &image).await.expect(202);
        let mut other = image.clone();
        other[500_000] ^= 1;
        let refused = send(&world, &token, "wrong", &other).await.expect(422);
        assert_eq!(refused.code(), "checksum_mismatch");
        assert_eq!(
            send(&world, &token, "wrong", &noise(2_000_001)).await.expect(413).code(),
            "body_too_large"
        );
        // One who does not say how much there is learns it on the way.
        let path = format!("{SNAPSHOTS}/wrong/content");
        let chunks = futures_util::stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(noise(100_000))));
        let request = world.anonymous("PUT", &path).bearer_auth(&token);
        let request = request.header("content-type", "application/octet-stream");
        let refused = world.send(request.body(reqwest::Body::wrap_stream(chunks))).await.expect(413);
        assert_eq!(refused.code(), "body_too_large");
        let json = world.call("PUT", &path, Some(json!({}))).await.expect(415);
        assert_eq!(json.code(), "unsupported_media_type");
        let stale = world.anonymous("PUT", &path).bearer_auth(&token).header("if-match", "\"9\"");
        let stale = stale.header("content-type", "application/octet-stream").body(image.clone());
        world.send(stale).await.expect(412);
        assert_eq!(in_pool(&world).await, 0);
        // And it can still be sent as it was announced.
        send(&world, &token, "wrong", &image).await.expect(202);
        world.until_snapshot("wrong", "ready").await;

        let both = json!({ "emulatorId": "emu_01jcr8e8v0e9bvqz3tz4d0wq2h", "import": { "like": like } });
        for body in [both, json!({ "name": "neither" })] {
            let refused = world.call("POST", SNAPSHOTS, Some(body)).await.expect(422);
            assert_eq!(refused.json()["errors"][0]["code"], "one_of");
        }
        let import = |import: Value| world.call("POST", SNAPSHOTS, Some(json!({ "import": import })));
        let refused = import(json!({ "tenantId": acme, "like": like })).await.expect(422);
        assert_eq!(refused.json()["errors"][0]["pointer"], "/import/checksum");
        let sum = checksum(&image);
        import(json!({ "tenantId": acme, "like": "nothing", "checksum": sum })).await.expect(404);
        let closed =
            import(json!({ "tenantId": acme, "like": like, "path": "/etc/passwd" })).await.expect(403);
        assert_eq!(closed.code(), "imports_closed");
        assert!(closed.text.contains("snapshots.import_folders"), "{}", closed.text);
        let taken = announce(&world, &token, &acme, &like, "wrong", &image).await.expect(409);
        assert_eq!(taken.code(), "name_taken");
    }
}

#[tokio::test]
async fn a_pool_without_room_refuses_before_the_first_byte() {
    let (world, acme, like) =
        with_a_tenant(On::Sqlite, &["--snapshots-upload-bytes", "9000000000000000"]).await;
    let token = world.token.clone();
    announce(&world, &token, &acme, &like, "huge", b"x").await.expect(202);
    let mut stream = begin(&world.server.address.to_string(), &token, "huge", 1 << 41);
    let said = tokio::task::spawn_blocking(move || answer(&mut stream)).await.expect("a thread");
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("no_capacity"), "{said}");
}

#[tokio::test]
async fn a_broken_off_upload_leaves_nothing_and_can_be_sent_again() {
    for on in BOTH {
        let (world, acme, like) = with_a_tenant(on, &[]).await;
        let (token, image) = (world.token.clone(), noise(1_000_000));
        announce(&world, &token, &acme, &like, "broken", &image).await.expect(202);
        let mut stream = begin(&world.server.address.to_string(), &token, "broken", image.len());
        stream.write_all(&image[..400_000]).expect("sent");
        tokio::time::sleep(Duration::from_millis(200)).await;
        // Meanwhile nobody else can send it.
        let other = send(&world, &token, "broken", &image).await.expect(409);
        assert_eq!(other.code(), "upload_in_progress");
        drop(stream);
        let started = Instant::now();
        loop {
            let sent = send(&world, &token, "broken", &image).await;
            if sent.status == 202 {
                break;
            }
            assert!(sent.status == 409 && started.elapsed() < Duration::from_secs(60), "{sent:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world.until_snapshot("broken", "ready").await;
    }
}

#[tokio::test]
async fn of_two_who_send_at_once_one_wins() {
    for on in BOTH {
        let (world, acme, like) = with_a_tenant(on, &[]).await;
        let (token, image) = (world.token.clone(), noise(4_000_000));
        announce(&world, &token, &acme, &like, "twice", &image).await.expect(202);
        let (one, other) =
            tokio::join!(send(&world, &token, "twice", &image), send(&world, &token, "twice", &image));
        let mut outcomes = [one.status.as_u16(), other.status.as_u16()];
        outcomes.sort_unstable();
        assert_eq!(outcomes, [202, 409], "{one:?} {other:?}");
        world.until_snapshot("twice", "ready").await;
        assert_eq!(in_pool(&world).await, 0);
    }
}

#[tokio::test]
async fn a_sender_who_stalls_is_cut_off_and_a_slow_one_is_not() {
    let limits =
        ["--limits-stall-seconds", "2", "--limits-request-seconds", "1", "--limits-body-seconds", "1"];
    let (world, acme, like) = with_a_tenant(On::Sqlite, &limits).await;
    let (token, image) = (world.token.clone(), noise(50_000));
    let address = world.server.address.to_string();
    announce(&world, &token, &acme, &like, "slow", &image).await.expect(202);
    let mut stream = begin(&address, &token, "slow", image.len());
    stream.write_all(&image[..10_000]).expect("sent");
    let started = Instant::now();
    let said = tokio::task::spawn_blocking(move || answer(&mut stream)).await.expect("a thread");
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("body_too_slow"), "{said}");
    assert!((1500..8000).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());

    let (mut stream, pieces) = (begin(&address, &token, "slow", image.len()), image.clone());
    let sending = tokio::task::spawn_blocking(move || {
        for piece in pieces.chunks(10_000) {
            stream.write_all(piece).expect("sent");
            std::thread::sleep(Duration::from_millis(1000));
        }
        answer(&mut stream)
    });
    let said = sending.await.expect("a thread");
    assert!(said.starts_with("HTTP/1.1 202"), "{said}");
    world.until_snapshot("slow", "ready").await;
}

#[tokio::test]
async fn only_who_may_import_into_a_tenant_does() {
    for on in BOTH {
        let (world, acme, like) = with_a_tenant(on, &[]).await;
        let (admin, image) = (world.token.clone(), noise(10_000));
        let other = world.tenant("other").await;
        let mut tokens = Vec::new();
        for (login, tenant, role) in
            [("ada", &acme, "operator"), ("bob", &acme, "member"), ("eve", &other, "admin")]
        {
            let user = world.user(login).await;
            world.join(tenant, &user, role).await;
            tokens.push(world.token_of(&user).await);
        }
        let [ada, bob, eve] = tokens.try_into().expect("three");
        announce(&world, &bob, &acme, &like, "bobs", &image).await.expect(403);
        announce(&world, &eve, &acme, &like, "eves", &image).await.expect(404);
        announce(&world, &ada, &acme, &like, "adas", &image).await.expect(202);
        assert_eq!(send(&world, &bob, "adas", &image).await.expect(403).code(), "forbidden");
        let (hidden, absent) =
            (send(&world, &eve, "adas", &image).await.expect(404), send(&world, &eve, "none", &image).await);
        assert_eq!(hidden.json()["detail"], absent.expect(404).json()["detail"]);
        // What another tenant has is nothing that an image could be like.
        announce(&world, &eve, &other, "adas", "eves", &image).await.expect(404);
        assert_eq!(in_pool(&world).await, 0);
        send(&world, &ada, "adas", &image).await.expect(202);
        let taken = world.until_snapshot("adas", "ready").await;
        assert_eq!(taken["tenantId"], acme.as_str());
        let captured = world.emulator(&admin, &acme).await;
        let captured = world.captured(&admin, &captured).await;
        assert_eq!(send(&world, &ada, &captured, &image).await.expect(409).code(), "invalid_state");
    }
}

#[tokio::test]
async fn an_upload_that_never_comes_is_given_up_after_a_day() {
    for on in BOTH {
        let (world, acme, like) = with_a_tenant(on, &[]).await;
        let (token, image) = (world.token.clone(), noise(10_000));
        announce(&world, &token, &acme, &like, "forgotten", &image).await.expect(202);
        // The credential does not live that long; the clock goes on once everything is asked for.
        world.clock.advance(Duration::from_secs(23 * 60 * 60));
        let admin = paddock_engine::users::first_admin(&world.server.engine).await.expect("the admin");
        let look = async |world: &World| {
            let token = world.token_of(&admin.id.to_string()).await;
            let path = format!("{SNAPSHOTS}/forgotten");
            world.call_as(&token, "GET", &path, None).await.expect(200).json()
        };
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(look(&world).await["state"], "creating");
        world.clock.advance(Duration::from_secs(61 * 60));
        let started = Instant::now();
        let given_up = loop {
            let seen = look(&world).await;
            if seen["state"] == "faulted" {
                break seen;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{seen}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(given_up["deployableProblems"], json!(["upload_missing"]));
        let token = world.token_of(&admin.id.to_string()).await;
        assert_eq!(send(&world, &token, "forgotten", &image).await.expect(409).code(), "invalid_state");
    }
}

#[tokio::test]
async fn a_file_on_the_server_is_imported_only_from_below_an_open_folder() {
    for on in BOTH {
        let (world, acme, like) =
            with_a_tenant(on, &["--snapshots-import-folders", "/srv/one,/srv/two"]).await;
        let import = |path: &str, sum: Option<String>| {
            let mut import = json!({ "tenantId": acme, "like": like, "path": path });
            if let Some(sum) = sum {
                import["checksum"] = json!(sum);
            }
            world.call("POST", SNAPSHOTS, Some(json!({ "import": import })))
        };
        for path in ["/etc/passwd", "/srv/one/../../etc/passwd", "/srv/one", "/srv/onemore/x", "/"] {
            let refused = import(path, None).await.expect(422);
            assert_eq!(refused.json()["errors"][0]["pointer"], "/import/path", "{path}");
        }
        let made = import("/srv/two/deep/Phone 14.qcow2", None).await.expect(202).json();
        let name = made["name"].as_str().expect("a name");
        assert!(name.starts_with("phone-14-"), "{name}");
        world.until_snapshot(name, "ready").await;
        // In the simulation, a file's name stands for what is in it.
        let path = "/srv/one/x";
        let made = import(path, Some(checksum(path.as_bytes()))).await.expect(202).json();
        world.until_snapshot(made["name"].as_str().expect("a name"), "ready").await;
        let made = import(path, Some(checksum(b"something else"))).await.expect(202).json();
        let faulted = world.until_snapshot(made["name"].as_str().expect("a name"), "faulted").await;
        assert_eq!(faulted["deployableProblems"], json!(["checksum_mismatch"]));
    }
}

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().expect(program);
    assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

impl Yard<'_> {
    async fn like(&self) -> String {
        let found = self.call("GET", "/api/v1/snapshots?deployable=true&deviceType=phone", None).await;
        found["items"][0]["name"].as_str().expect("a name").to_owned()
    }

    async fn announce(&self, tenant: &str, like: &str, name: &str, bytes: &[u8]) {
        let import = json!({ "tenantId": tenant, "like": like, "checksum": checksum(bytes) });
        self.call("POST", SNAPSHOTS, Some(json!({ "name": name, "import": import }))).await;
    }

    async fn send(&self, name: &str, bytes: &[u8]) -> Option<u16> {
        let request = self.request("PUT", &format!("{SNAPSHOTS}/{name}/content"));
        let request = request.header("content-type", "application/octet-stream").body(bytes.to_vec());
        Some(request.send().await.ok()?.status().as_u16())
    }

    async fn settled(&self, name: &str) -> Value {
        let started = Instant::now();
        loop {
            let seen = self.call("GET", &format!("{SNAPSHOTS}/{name}"), None).await;
            if seen["state"] == "ready" || seen["state"] == "faulted" {
                return seen;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "{seen}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What lies among the layers.
    fn layers(&self) -> Vec<String> {
        let folder = fs::read_dir(self.data.path().join("disks/layers")).expect("layers");
        let mut names: Vec<String> =
            folder.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The phone's disk as one file, with something in it that the image does not have.
fn exported(folder: &Path) -> PathBuf {
    let (raw, exported) = (folder.join("phone.raw"), folder.join("phone.qcow2"));
    run("qemu-img", &["convert", "-O", "raw", text(&images().join("phone.qcow2")), text(&raw)]);
    let note = folder.join("note");
    fs::write(&note, "from outside\n").expect("a file");
    run("debugfs", &["-w", "-R", &format!("write {} imported", text(&note)), text(&raw)]);
    run("qemu-img", &["convert", "-O", "qcow2", text(&raw), text(&exported)]);
    exported
}

#[tokio::test]
async fn a_real_image_is_sent_boots_and_is_deployed_and_a_bad_one_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = folder.path().join("shelf");
    fs::create_dir(&shelf).expect("a folder");
    let data = Data::new();
    let yard = Yard::open(&data, &["--snapshots-import-folders", text(&shelf)]);
    let tenant = yard.tenant("acme").await;
    let like = yard.like().await;
    let file = exported(folder.path());
    let image = fs::read(&file).expect("the image");
    let before = yard.layers();

    yard.announce(&tenant, &like, "from-outside", &image).await;
    assert_eq!(yard.send("from-outside", &image).await, Some(202));
    let ready = yard.settled("from-outside").await;
    assert_eq!((&ready["state"], &ready["deployable"]), (&json!("ready"), &json!(true)), "{ready}");
    assert_eq!(ready["checksum"], checksum(&image));
    let spec = json!({ "tenantId": tenant, "snapshot": "from-outside" });
    let phone = Phone::read(&yard.call("POST", "/api/v1/emulators", Some(spec)).await);
    yard.until(&phone.id, "running").await;
    let adb = Adb::new();
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "getprop ro.serialno"), phone.serial);
    yard.call("DELETE", &format!("/api/v1/emulators/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
    yard.sound();

    // The same from a shelf of the server's, which no link leads away from.
    fs::copy(&file, shelf.join("phone.qcow2")).expect("a copy");
    std::os::unix::fs::symlink(&file, shelf.join("link.qcow2")).expect("a link");
    std::os::unix::fs::symlink(folder.path(), shelf.join("away")).expect("a link");
    let path = |name: &str, sum: Option<&str>| {
        let mut import = json!({ "tenantId": tenant, "like": like, "path": shelf.join(name) });
        if let Some(sum) = sum {
            import["checksum"] = json!(sum);
        }
        yard.call("POST", SNAPSHOTS, Some(json!({ "import": import })))
    };
    let sum = checksum(&image);
    let made = path("phone.qcow2", Some(&sum)).await;
    let ready = yard.settled(made["name"].as_str().expect("a name")).await;
    assert_eq!((&ready["deployable"], &ready["checksum"]), (&json!(true), &json!(sum)), "{ready}");
    let kept = yard.layers();
    let other = checksum(b"another");
    for (name, sum, code, reason) in [
        ("phone.qcow2", Some(other.as_str()), "checksum_mismatch", "checksum"),
        ("link.qcow2", None, "image_refused", "link"),
        ("away/phone.qcow2", None, "image_refused", "link"),
        ("absent.qcow2", None, "image_missing", "import folder"),
    ] {
        let made = path(name, sum).await;
        let faulted = yard.settled(made["name"].as_str().expect("a name")).await;
        assert_eq!(faulted["deployableProblems"], json!([code]), "{faulted}");
        assert!(faulted["fault"].as_str().is_some_and(|fault| fault.contains(reason)), "{faulted}");
    }
    assert_eq!(yard.layers(), kept);

    // Images that would harm somebody, or serve nobody.
    let cut = &image[..image.len() / 2];
    let mut corrupt = image.clone();
    let l1 = u64::from_be_bytes(image[40..48].try_into().expect("eight bytes")) as usize;
    // Its first table points behind the end of the file.
    corrupt[l1..l1 + 8].copy_from_slice(&(0x8000_0000_0000_0000u64 | (1 << 40)).to_be_bytes());
    let mut looping = image.clone();
    // The table of tables is its own first table.
    looping[l1..l1 + 8].copy_from_slice(&(0x8000_0000_0000_0000u64 | l1 as u64).to_be_bytes());
    let backed = folder.path().join("backed.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", text(&backed), "1M"]);
    let backed = fs::read(&backed).expect("an image");
    for (name, bytes) in [("cut", cut), ("corrupt", &corrupt), ("looping", &looping), ("backed", &backed)] {
        yard.announce(&tenant, &like, name, bytes).await;
        assert_eq!(yard.send(name, bytes).await, Some(202), "{name}");
        let faulted = yard.settled(name).await;
        assert_eq!(faulted["deployableProblems"], json!(["image_refused"]), "{name}: {faulted}");
        println!("{name}: {}", faulted["fault"]);
    }
    assert_eq!(yard.layers(), kept);
    yard.sound();
    let listed = yard.call("GET", &format!("{SNAPSHOTS}?tenantId={tenant}"), None).await;
    for snapshot in listed["items"].as_array().expect("a list") {
        let name = snapshot["name"].as_str().expect("a name");
        yard.call("DELETE", &format!("{SNAPSHOTS}/{name}"), None).await;
    }
    let started = Instant::now();
    while yard.layers() != before {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?} and not {before:?}", yard.layers());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    yard.sound();
}

#[tokio::test]
async fn a_kill_in_the_middle_of_an_upload_or_an_import_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Data::new();
    let mut yard = Yard::open(&data, &[]);
    let tenant = yard.tenant("acme").await;
    let like = yard.like().await;
    let image = fs::read(exported(folder.path())).expect("the image");
    let before = yard.layers();

    yard.announce(&tenant, &like, "killed", &image).await;
    let mut stream = begin(&yard.daemon.address, &yard.daemon.token(), "killed", image.len());
    stream.write_all(&image[..image.len() / 2]).expect("sent");
    let started = Instant::now();
    while yard.layers() == before {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing arrives");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    yard = yard.reopen();
    assert_eq!(yard.layers(), before, "what was half sent is swept");
    yard.sound();

    // Sent as a whole and killed at once, again and again: what was acknowledged goes on by itself, the rest can be sent again.
    let mut acknowledged = 0;
    for (round, pause) in [0, 5, 20, 60, 150, 400].into_iter().enumerate() {
        let name = if round == 0 { "killed".to_owned() } else { format!("killed-{round}") };
        if round > 0 {
            yard.announce(&tenant, &like, &name, &image).await;
        }
        let sent = yard.send(&name, &image).await;
        assert_eq!(sent, Some(202));
        tokio::time::sleep(Duration::from_millis(pause)).await;
        yard = yard.reopen();
        acknowledged += 1;
        let ready = yard.settled(&name).await;
        assert_eq!(ready["deployable"], true, "{ready}");
        yard.sound();
    }
    // And killed before there was an answer.
    for pause in [1, 4, 8, 16, 32] {
        let name = format!("unanswered-{pause}");
        yard.announce(&tenant, &like, &name, &image).await;
        let pid = yard.daemon.child.id().to_string();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(pause));
            Command::new("kill").args(["-9", &pid]).status().expect("killed")
        });
        let sent = yard.send(&name, &image).await;
        killer.join().expect("a thread");
        yard = yard.reopen();
        yard.sound();
        if sent != Some(202) {
            let again = yard.send(&name, &image).await;
            assert!(matches!(again, Some(202 | 409)), "{again:?}");
        }
        let ready = yard.settled(&name).await;
        assert_eq!(ready["deployable"], true, "{ready}");
        yard.sound();
    }
    println!("{acknowledged} acknowledged uploads were killed");
    assert!(yard.layers().iter().all(|name| !name.contains("received") && !name.starts_with('.')));
}
