//! How a user signs in from the command line, with a scripted browser at the other end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use paddock_server::config;
use paddock_server::http::meta::Build;
use paddock_server::wiring::{self, Server};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

struct World {
    server: Server,
    runtime: Runtime,
    home: tempfile::TempDir,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let (folder, home) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a home"));
        let runtime = Runtime::new().expect("a runtime");
        let flags = ["paddockd", "--data", &folder.path().display().to_string(), "--listen", "127.0.0.1:0"]
            .map(str::to_owned);
        let matches =
            config::command(clap::Command::new("paddockd")).try_get_matches_from(flags).expect("flags");
        let config = config::load(&matches, std::iter::empty()).expect("settings").0;
        let build = Build { commit: "unknown", built_at: "1970-01-01T00:00:00Z" };
        let server = runtime.block_on(wiring::start(&config, wiring::World::real(build))).expect("a server");
        World { server, runtime, home, folder }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    fn paddock(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
        command.env_clear().env("PADDOCK_URL", self.url()).env("XDG_CONFIG_HOME", self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.paddock(arguments).output().expect("paddock starts")
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn kept(&self) -> Value {
        let text = std::fs::read(self.file()).expect("the credentials");
        serde_json::from_slice(&text).expect("JSON")
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.path().join("paddock/credentials.json")
    }

    fn keep(&self, kept: &Value) {
        std::fs::write(self.file(), kept.to_string()).expect("written");
    }

    /// Makes the access token look old, so that the next command needs another one.
    fn age(&self) {
        let mut kept = self.kept();
        kept["servers"][self.url()]["expires_at"] = json!(0);
        self.keep(&kept);
    }

    /// A person who signs in as the admin and then decides on the page.
    fn browse(&self, page: &str, decision: &str) -> String {
        self.runtime.block_on(async {
            let file = self.folder.path().join("admin-password");
            let password = std::fs::read_to_string(file).expect("the password");
            let mut browser = Browser::new(self.url());
            let sign_in = browser.get(page).await.location();
            let form = browser.get(&sign_in).await.form(&[("login", "admin"), ("password", password.trim())]);
            let back = browser.post("/sign-in", form).await.location();
            let form = browser.get(&back).await.form(&[("decision", decision)]);
            let action = if back.starts_with("/device") { "/device" } else { "/oauth/authorize" };
            let answer = browser.post(action, form).await;
            if action == "/device" { answer.text } else { browser.get(&answer.location()).await.text }
        })
    }
}

struct Browser {
    http: reqwest::Client,
    base: String,
    cookies: Vec<(String, String)>,
}

struct Shown {
    location: Option<String>,
    text: String,
}

impl Browser {
    fn new(base: String) -> Self {
        // The client's TLS is set up although no test here speaks it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        Browser { http: http.expect("a client"), base, cookies: Vec::new() }
    }

    async fn get(&mut self, page: &str) -> Shown {
        let url = if page.starts_with('/') { format!("{}{page}", self.base) } else { page.to_owned() };
        let request = self.http.get(url);
        self.send(request).await
    }

    async fn post(&mut self, path: &str, form: String) -> Shown {
        let request = self.http.post(format!("{}{path}", self.base)).body(form);
        self.send(request.header("content-type", "application/x-www-form-urlencoded")).await
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> Shown {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = request.header("cookie", cookies.join("; ")).send().await.expect("an answer");
        for cookie in answer.headers().get_all("set-cookie") {
            let (name, rest) = cookie.to_str().expect("text").split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        let location = answer.headers().get("location").map(|to| to.to_str().expect("text").to_owned());
        Shown { location, text: answer.text().await.expect("a body") }
    }
}

impl Shown {
    #[track_caller]
    fn location(self) -> String {
        self.location.unwrap_or_else(|| panic!("no redirect: {}", self.text))
    }

    /// The page's hidden fields and these.
    fn form(self, fields: &[(&str, &str)]) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        for tag in self.text.split("<input type=\"hidden\" ").skip(1) {
            let part = |name: &str| {
                let rest = tag.split(&format!("{name}=\"")).nth(1).expect("an attribute");
                rest.split('"').next().unwrap_or_default().replace("&amp;", "&")
            };
            form.append_pair(&part("name"), &part("value"));
        }
        form.extend_pairs(fields);
        form.finish()
    }
}

/// The first line on standard error that has this in it; what follows is read on, so that nobody waits for us.
fn line(child: &mut Child, part: &str) -> String {
    let mut lines = BufReader::new(child.stderr.take().expect("its errors")).lines();
    let found = lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains(part));
    std::thread::spawn(move || lines.for_each(drop));
    found.expect("a line").trim().to_owned()
}

#[test]
fn a_browser_signs_the_command_line_in() {
    let world = World::new();
    let nobody = world.run(&["tenant", "list"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("paddock auth login"));
    assert_eq!(world.run(&["auth", "status"]).status.code(), Some(3));

    let mut login = world.paddock(&["auth", "login", "--no-browser"]).spawn().expect("paddock starts");
    let page = line(&mut login, "http://");
    let shown = world.browse(&page, "allow");
    assert!(shown.contains("You can close this page") && !shown.contains("code"), "{shown}");
    assert!(login.wait().expect("an end").success());

    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(world.file()).expect("the file").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    world.succeed(&["tenant", "create", "acme"]);
    let status: Value =
        serde_json::from_str(&world.succeed(&["auth", "status", "-o", "json"])).expect("JSON");
    assert_eq!((&status["name"], &status["by"]), (&json!("admin"), &json!("sign_in")));

    // What the environment gives goes before what is kept.
    let mut given = world.paddock(&["tenant", "list"]);
    assert_eq!(given.env("PADDOCK_TOKEN", "garbage").output().expect("an end").status.code(), Some(3));

    // Commands that run at once do not look like thieves to each other.
    world.age();
    let before = world.kept();
    let all: Vec<Child> =
        (0..5).map(|_| world.paddock(&["auth", "token"]).spawn().expect("starts")).collect();
    for child in all {
        assert!(child.wait_with_output().expect("an end").status.success());
    }
    assert_ne!(world.kept(), before);
    world.succeed(&["tenant", "get", "acme"]);

    let last = world.kept();
    world.succeed(&["auth", "logout"]);
    assert_eq!(world.run(&["auth", "token"]).status.code(), Some(3));
    // A copy of the file is worth nothing after the sign-out.
    world.keep(&last);
    world.age();
    let over = world.run(&["tenant", "list"]);
    assert_eq!(over.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&over.stderr).contains("paddock auth login"));
}

#[test]
fn who_declines_stays_signed_out() {
    let world = World::new();
    let mut login = world.paddock(&["auth", "login", "--no-browser"]).spawn().expect("paddock starts");
    let page = line(&mut login, "http://");
    world.browse(&page, "deny");
    assert_eq!(login.wait().expect("an end").code(), Some(3));
    assert!(!world.file().exists());
}

#[test]
fn a_machine_without_a_browser_shows_a_code() {
    let world = World::new();
    let mut login = world.paddock(&["auth", "login", "--device"]).spawn().expect("paddock starts");
    let is_code = |line: &str| line.len() == 9 && line.as_bytes()[4] == b'-';
    let mut lines = BufReader::new(login.stderr.take().expect("its errors")).lines();
    let mut trimmed = lines.by_ref().map(|line| line.expect("text").trim().to_owned());
    let code = trimmed.find(|line| is_code(line)).expect("a code");
    std::thread::sleep(Duration::from_millis(50));
    assert!(world.browse(&format!("/device?user_code={code}"), "allow").contains("signed in"));
    lines.for_each(drop);
    assert!(login.wait().expect("an end").success());
    world.succeed(&["tenant", "list"]);
}

#[test]
fn a_token_at_hand_is_kept() {
    let world = World::new();
    let admin =
        world.runtime.block_on(paddock_engine::users::first_admin(&world.server.engine)).expect("the admin");
    let engine = &world.server.engine;
    let minted = paddock_server::auth::access_token::mint(engine, admin.id, engine.now());
    let token = world.runtime.block_on(minted).expect("a token");
    for (text, exit) in [(token.as_str(), 0), ("garbage", 3), ("", 2)] {
        let mut login = world.paddock(&["auth", "login", "--with-token"]);
        let mut child = login.stdin(Stdio::piped()).spawn().expect("paddock starts");
        child.stdin.take().expect("its input").write_all(text.as_bytes()).expect("written");
        let mut words = String::new();
        child.stderr.take().expect("its errors").read_to_string(&mut words).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(exit), "{words}");
        assert!(text.is_empty() || !words.contains(text), "{words}");
    }
    assert_eq!(world.succeed(&["auth", "token"]).trim(), token);
}
