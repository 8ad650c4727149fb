//! The pages in a real browser: Chromium holds our cookies, our policy and our redirects against its own rules.

mod chromium;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use chromium::{Chromium, server};
use paddock_engine::users;
use paddock_server::auth::access_token;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_and_lets_the_command_line_act_for_them() {
    let (folder, home) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a home"));
    let server = server(folder.path(), &[]).await;
    let password = std::fs::read_to_string(folder.path().join("admin-password")).expect("the password");
    let base = format!("http://{}", server.address);
    let chromium = Chromium::start(&home.path().join("chromium")).await;

    chromium.open(&base).await;
    assert_eq!(chromium.url().await, format!("{base}/sign-in"));
    chromium.photograph("sign-in.png").await;
    chromium.fill("#login", "admin").await;
    chromium.fill("#password", "not the password").await;
    chromium.click("button").await;
    chromium.shows("#error", "The login or the password is wrong.").await;
    chromium.photograph("wrong-password.png").await;
    chromium.fill("#password", password.trim()).await;
    chromium.click("button").await;
    chromium.shows("h1", "You are signed in").await;
    chromium.photograph("home.png").await;
    chromium.click("form[action='/sign-out'] button").await;
    chromium.shows("h1", "Sign in").await;
    chromium.open(&base).await;
    chromium.shows("h1", "Sign in").await;

    // By an address of either kind: browsers hold the redirect to the command line against our policy.
    for name in ["127.0.0.1", "localhost"] {
        let base = format!("http://{name}:{}", server.address.port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
        command.env_clear().env("PADDOCK_URL", &base).env("XDG_CONFIG_HOME", home.path());
        command.args(["auth", "login", "--no-browser"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut login = command.spawn().expect("paddock starts");
        let mut lines = BufReader::new(login.stderr.take().expect("its errors")).lines();
        let page = lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains("http://"));
        chromium.open(page.expect("an address").trim()).await;
        chromium.fill("#login", "admin").await;
        chromium.fill("#password", password.trim()).await;
        chromium.click("button").await;
        chromium.shows("h1", "Let a program act for you").await;
        chromium.photograph("consent.png").await;
        chromium.click("button[value='allow']").await;
        chromium.shows("p", "The command line has its answer").await;
        lines.for_each(drop);
        assert!(login.wait().expect("an end").success());
    }
    let device = format!("{base}/device");
    chromium.open(&device).await;
    chromium.fill("#user_code", "bbbb bbbb").await;
    chromium.click("button").await;
    chromium.shows("#error", "There is no such code").await;
    chromium.photograph("device.png").await;
    chromium.end().await;
    server.stop().await;
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock"))
}

/// A page with a VNC client that we have not written, on an address of its own.
fn serve_page() -> String {
    const PAGE: &str =
        "<!doctype html><title>Display</title><style>body { margin: 0 }</style><div id=screen></div>
<p id=state>waiting</p><script type=module>
import RFB from '/core/rfb.js';
const state = (text) => { document.getElementById('state').textContent = text; };
window.show = (url) => {
    const rfb = new RFB(document.getElementById('screen'), url);
    rfb.addEventListener('connect', () => state('live'));
    rfb.addEventListener('disconnect', (event) => state('over'));
};
state('ready');
</script>";
    let client = cache().join("tools/npm-novnc/node_modules/@novnc/novnc");
    assert!(client.join("core/rfb.js").exists(), "there is no VNC client; run `scripts/setup test`");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let client = client.clone();
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
                let request = lines.next().and_then(Result::ok).unwrap_or_default();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
                let (kind, body) = match &*path {
                    "" => ("text/html", PAGE.as_bytes().to_vec()),
                    path => ("text/javascript", std::fs::read(client.join(path)).unwrap_or_default()),
                };
                let head = format!(
                    "HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            });
        }
    });
    address
}

/// Devices outlive their server; those of a test that failed must not outlive the test.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let ours = format!("qemu-system.*{}", self.0.display());
        let listed = Command::new("pgrep").args(["-f", &ours]).output().expect("pgrep");
        for process in String::from_utf8_lossy(&listed.stdout).lines() {
            let _ = Command::new("kill").args(["-9", process]).status();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_shows_a_devices_display_and_a_click_is_a_touch() {
    let (folder, home) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a home"));
    let _cleared = Cleared(folder.path().to_owned());
    let (page, images) = (serve_page(), cache().join("image"));
    assert!(images.join("phone.profile.json").exists(), "there is no image; run `make image`");
    let flags = ["--devices-images", images.to_str().expect("text"), "--cors-origins", &page];
    let server = server(folder.path(), &flags).await;
    let admin = users::first_admin(&server.engine).await.expect("the first admin");
    let token = access_token::mint(&server.engine, admin.id, server.engine.now()).await.expect("a token");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().timeout(Duration::from_secs(120)).build().expect("a client");
    let call = async |method: &str, path: &str, body: Value| -> Value {
        let url = format!("http://{}/api/v1{path}", server.address);
        let request = http.request(method.parse().expect("a method"), url).bearer_auth(&token).json(&body);
        request.send().await.expect("an answer").json().await.expect("JSON")
    };
    let tenant = call("POST", "/tenants", json!({ "name": "acme" })).await["id"].clone();
    let mut made = Value::Null;
    for _ in 0..600 {
        made = call("POST", "/emulators", json!({ "tenantId": tenant, "deviceType": "phone" })).await;
        if made["id"].is_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let id = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    for _ in 0..100 {
        let seen = call("GET", &format!("/emulators/{id}/status?wait=5"), json!({})).await;
        if seen["status"] == "running" {
            break;
        }
        assert_ne!(seen["status"], "failed", "{seen}");
    }
    let chromium = Chromium::start(&home.path().join("chromium")).await;
    chromium.open(&page).await;
    chromium.shows("#state", "ready").await;
    let ticket = call("POST", &format!("/emulators/{id}/tickets"), json!({ "channel": "display" })).await;
    let ticket = ticket["ticket"].as_str().unwrap_or_else(|| panic!("{ticket}"));
    let url = format!("ws://{}/api/v1/emulators/{id}/display?ticket={ticket}", server.address);
    chromium.post("/execute/sync", json!({ "script": "window.show(arguments[0])", "args": [url] })).await;
    chromium.shows("#state", "live").await;
    // The picture is there when it holds more than one colour.
    let colours = "const canvas = document.querySelector('#screen canvas'); if (!canvas || !canvas.width) return 0;
        const seen = new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer));
        return seen.size;";
    let mut seen = Value::Null;
    for _ in 0..200 {
        seen = chromium.post("/execute/sync", json!({ "script": colours, "args": [] })).await;
        if seen.as_i64().unwrap_or(0) > 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(seen.as_i64().unwrap_or(0) > 20, "{seen} colours");
    chromium.photograph("display.png").await;
    // A click, as a hand makes it.
    let pointer = json!({ "actions": [{
        "type": "pointer", "id": "mouse", "parameters": { "pointerType": "mouse" },
        "actions": [
            { "type": "pointerMove", "duration": 50, "x": 120, "y": 200 },
            { "type": "pointerDown", "button": 0 },
            { "type": "pause", "duration": 100 },
            { "type": "pointerUp", "button": 0 },
        ],
    }] });
    chromium.post("/actions", pointer).await;
    let device = format!("{}:5555", made["endpoints"]["adb"]["host"].as_str().expect("an address"));
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let adb = |arguments: &[&str]| {
        let output =
            Command::new("timeout").args(["30", "adb", "-P", &port.to_string()]).args(arguments).output();
        String::from_utf8_lossy(&output.expect("adb; `make test` installs it").stdout).into_owned()
    };
    adb(&["connect", &device]);
    let mut log = String::new();
    for _ in 0..100 {
        log = adb(&["-s", &device, "shell", "logcat -d -b events"]);
        if log.contains("touch [") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    adb(&["kill-server"]);
    let script = "const place = document.querySelector('#screen canvas').getBoundingClientRect();
        return [Math.round(120 - place.left), Math.round(200 - place.top)];";
    let wanted = chromium.post("/execute/sync", json!({ "script": script, "args": [] })).await;
    let touch = log.rsplit_once("touch [").expect("a touch").1.split(']').next().unwrap_or_default();
    let touch: Vec<i64> = touch.split(", ").map(|number| number.parse().expect("a number")).collect();
    let near = |which: usize| (touch[which] - wanted[which].as_i64().expect("a number")).abs() <= 2;
    assert!(near(0) && near(1), "{touch:?} and not {wanted}");
    call("DELETE", &format!("/emulators/{id}"), json!({})).await;
    chromium.shows("#state", "over").await;
    chromium.end().await;
    server.stop().await;
}
