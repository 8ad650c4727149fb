//! The pages in a real browser: Chromium holds our cookies, our policy and our redirects against its own rules.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use paddock_engine::users;
use paddock_server::auth::access_token;
use paddock_server::config;
use paddock_server::http::meta::Build;
use paddock_server::wiring::{self, Server};
use serde_json::{Value, json};

const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A Chromium, driven by the protocol that every browser's driver speaks (W3C WebDriver).
struct Chromium {
    driver: Child,
    http: reqwest::Client,
    session: String,
}

impl Chromium {
    async fn start(profile: &Path) -> Chromium {
        let mut command = Command::new("chromedriver");
        let mut driver = command
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver; see scripts/setup");
        let lines = BufReader::new(driver.stdout.take().expect("its output")).lines();
        let started = lines
            .map(|line| line.expect("text"))
            .find(|line| line.contains("successfully on port "))
            .expect("a port");
        let port: String = started
            .rsplit("on port ")
            .next()
            .unwrap_or_default()
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        // The client's TLS is set up although no test here speaks it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().expect("a client");
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--window-size=900,700",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "args": arguments } } } });
        let base = format!("http://127.0.0.1:{port}");
        let answer = http.post(format!("{base}/session")).json(&wanted).send().await.expect("a driver");
        let answer: Value = answer.json().await.expect("JSON");
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let session = format!("{base}/session/{id}");
        Chromium { driver, http, session }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer =
            self.http.post(format!("{}{path}", self.session)).json(&body).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        assert!(answer["value"]["error"].is_null(), "{path} {body}: {}", answer["value"]);
        answer["value"].clone()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.session)).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")["value"].clone()
    }

    async fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// The element, as soon as it is there: a page that was asked for by a click comes when it comes.
    async fn element(&self, selector: &str) -> String {
        let wanted = json!({ "using": "css selector", "value": selector });
        for _ in 0..100 {
            let path = format!("{}/element", self.session);
            let answer = self.http.post(path).json(&wanted).send().await.expect("an answer");
            let answer: Value = answer.json().await.expect("JSON");
            if let Some(found) = answer["value"][ELEMENT].as_str() {
                return found.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("there is no {selector} on {}", self.url().await);
    }

    async fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }

    async fn text(&self, selector: &str) -> String {
        let element = self.element(selector).await;
        // An element of a page that is gone meanwhile says nothing.
        self.get(&format!("/element/{element}/text")).await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page says so: after a click, the page before may still be there.
    async fn shows(&self, selector: &str, words: &str) {
        let mut seen = String::new();
        for _ in 0..200 {
            seen = self.text(selector).await;
            if seen.contains(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{selector} says {seen:?} instead of {words:?} on {}", self.url().await);
    }

    async fn url(&self) -> String {
        self.get("/url").await.as_str().expect("an address").to_owned()
    }

    /// For people who want to look; does nothing unless they say where to.
    async fn photograph(&self, name: &str) {
        let Some(folder) = std::env::var_os("TEST_SCREENSHOTS") else { return };
        let image = self.get("/screenshot").await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(image.as_str().expect("an image"));
        std::fs::write(Path::new(&folder).join(name), bytes.expect("base64")).expect("written");
    }

    async fn end(self) {
        let _ = self.http.delete(&self.session).send().await;
    }
}

/// Also after a test that failed: the driver ends its browser with itself.
impl Drop for Chromium {
    fn drop(&mut self) {
        let end = format!("{}/", self.session);
        let _ =
            Command::new("curl").args(["-s", "-m", "5", "-X", "DELETE", end.trim_end_matches('/')]).output();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

async fn server(folder: &Path, flags: &[&str]) -> Server {
    let data = folder.display().to_string();
    let flags = [&["paddockd", "--data", &data, "--listen", "127.0.0.1:0"], flags].concat();
    let matches = config::command(clap::Command::new("paddockd")).try_get_matches_from(flags).expect("flags");
    let config = config::load(&matches, std::iter::empty()).expect("settings").0;
    let build = Build { commit: "unknown", built_at: "1970-01-01T00:00:00Z" };
    wiring::start(&config, wiring::World::real(build)).await.expect("a server")
}

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
