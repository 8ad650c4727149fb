//! A real browser for tests, and a server to open in it.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use paddock_server::config;
use paddock_server::http::meta::Build;
use paddock_server::wiring::{self, Server};
use serde_json::{Value, json};

const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A Chromium, driven by the protocol that every browser's driver speaks (W3C WebDriver).
pub struct Chromium {
    driver: Child,
    http: reqwest::Client,
    session: String,
}

impl Chromium {
    pub async fn start(profile: &Path) -> Chromium {
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
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "performance": "ALL" },
        } } });
        let base = format!("http://127.0.0.1:{port}");
        let answer = http.post(format!("{base}/session")).json(&wanted).send().await.expect("a driver");
        let answer: Value = answer.json().await.expect("JSON");
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let session = format!("{base}/session/{id}");
        Chromium { driver, http, session }
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        let answer =
            self.http.post(format!("{}{path}", self.session)).json(&body).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        assert!(answer["value"]["error"].is_null(), "{path} {body}: {}", answer["value"]);
        answer["value"].clone()
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.session)).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")["value"].clone()
    }

    pub async fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// The element, as soon as it is there: a page that was asked for by a click comes when it comes.
    pub async fn element(&self, selector: &str) -> String {
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

    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    pub async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }

    pub async fn text(&self, selector: &str) -> String {
        let element = self.element(selector).await;
        // An element of a page that is gone meanwhile says nothing.
        self.get(&format!("/element/{element}/text")).await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page says so: after a click, the page before may still be there.
    pub async fn shows(&self, selector: &str, words: &str) {
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

    pub async fn url(&self) -> String {
        self.get("/url").await.as_str().expect("an address").to_owned()
    }

    /// The addresses that were asked for since the last time, those of redirects too.
    pub async fn visited(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "performance" })).await;
        let messages = log.as_array().into_iter().flatten().filter_map(|entry| entry["message"].as_str());
        let messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let sent = messages.filter(|entry| entry["message"]["method"] == "Network.requestWillBeSent");
        sent.filter_map(|entry| entry["message"]["params"]["request"]["url"].as_str().map(str::to_owned))
            .collect()
    }

    /// For people who want to look; does nothing unless they say where to.
    pub async fn photograph(&self, name: &str) {
        let Some(folder) = std::env::var_os("TEST_SCREENSHOTS") else { return };
        let image = self.get("/screenshot").await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(image.as_str().expect("an image"));
        std::fs::write(Path::new(&folder).join(name), bytes.expect("base64")).expect("written");
    }

    pub async fn end(self) {
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

pub async fn server(folder: &Path, flags: &[&str]) -> Server {
    let data = folder.display().to_string();
    let flags = [&["paddockd", "--data", &data, "--listen", "127.0.0.1:0"], flags].concat();
    let matches = config::command(clap::Command::new("paddockd")).try_get_matches_from(flags).expect("flags");
    let config = config::load(&matches, std::iter::empty()).expect("settings").0;
    let build = Build { commit: "unknown", built_at: "1970-01-01T00:00:00Z" };
    wiring::start(&config, wiring::World::real(build)).await.expect("a server")
}
