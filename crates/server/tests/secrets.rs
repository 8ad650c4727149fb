//! No secret anywhere: everything that handles one is used, with values that can be recognised, and afterwards none of them
//! is in what the server wrote, said or kept.

mod browser;
mod daemon;
mod issuer;
mod world;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use browser::{Browser, Form};
use daemon::{Daemon, paddockd};
use issuer::{AUDIENCE, Key, TestIssuer, section};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use world::{Answer, Contract, On, new_postgres_database};

const REDIRECT: &str = "http://127.0.0.1:40123/callback";
const SESSION: &str = "__Host-paddock-session";
/// How the places in a database are called.
const DATABASE: &str = "the database";

/// What must not be found, and where it must not be.
#[derive(Default)]
struct Hunt {
    /// By name.
    canaries: Vec<(String, String)>,
    /// What the database must know, and nothing else.
    stored: Vec<(String, String)>,
    /// By place.
    haystacks: Vec<(String, Vec<u8>)>,
}

impl Hunt {
    /// A secret of our choice: long enough for a password, and with signs that look otherwise where text is encoded.
    fn canary(&mut self, name: &str) -> String {
        let text = format!("CANARY {name}+/{:04}", self.canaries.len());
        self.keep(name, &text);
        text
    }

    /// The same for where only letters, digits and hyphens may stand.
    fn plain_canary(&mut self, name: &str) -> String {
        let text = format!("CANARY-{name}-{:04}", self.canaries.len());
        self.keep(name, &text);
        text
    }

    /// A secret that the server has made.
    fn keep(&mut self, name: &str, text: &str) {
        assert!(text.len() >= SHORTEST, "{name} is too short to be looked for");
        self.canaries.push((name.to_owned(), text.to_owned()));
    }

    /// What it takes to use a signed token; the rest of it says nothing that is secret.
    fn keep_token(&mut self, name: &str, token: &str) {
        self.keep(name, token.rsplit('.').next().unwrap_or_default());
    }

    fn search_in(&mut self, place: &str, text: impl Into<Vec<u8>>) {
        self.haystacks.push((place.to_owned(), text.into()));
    }

    /// Looks through the answer later, if it is an error or says something of what is kept.
    fn heard(&mut self, place: &str, answer: Answer) -> Answer {
        if answer.status.as_u16() >= 400 {
            let text = format!("{:?}\n{}", answer.headers, without_own_fields(&answer.text));
            self.search_in(&format!("the answer {} to {place}", answer.status), text);
        }
        answer
    }

    fn found(&self) -> BTreeSet<Found> {
        let outside: Vec<_> =
            self.haystacks.iter().filter(|(place, _)| !place.starts_with(DATABASE)).cloned().collect();
        let mut found = search(&self.canaries, &self.haystacks);
        found.extend(search(&self.stored, &outside));
        found
    }

    /// Whether the search is worth anything: in a copy of what it searches, it finds each canary in each form.
    fn check_itself(&self) {
        let (place, log) = &self.haystacks[0];
        let middle = log.len() / 2;
        let all = [&self.canaries[..], &self.stored].concat();
        let (mut copy, mut expected) = (log[..middle].to_vec(), BTreeSet::new());
        for (name, text) in &all {
            for (form, bytes) in forms(text) {
                copy.extend_from_slice(&bytes);
                copy.push(b'\n');
                expected.insert((name.clone(), form, place.clone()));
            }
        }
        copy.extend_from_slice(&log[middle..]);
        assert_eq!(search(&all, &[(place.clone(), copy)]), expected, "the search overlooks what is there");
    }
}

/// A canary, the form that it has, and the place where it is.
type Found = (String, &'static str, String);

fn search(canaries: &[(String, String)], haystacks: &[(String, Vec<u8>)]) -> BTreeSet<Found> {
    let written = |(name, text): &(String, String)| {
        let name = name.clone();
        forms(text).into_iter().map(move |(form, bytes)| (name.clone(), form, bytes))
    };
    let needles: Vec<(String, &str, Vec<u8>)> = canaries.iter().flat_map(written).collect();
    // One look at each byte is enough for all of them.
    let mut by_start: HashMap<&[u8], Vec<usize>> = HashMap::new();
    let mut starts = vec![false; 1 << 16];
    let pair = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    for (number, (_, _, bytes)) in needles.iter().enumerate() {
        by_start.entry(&bytes[..SHORTEST]).or_default().push(number);
        starts[pair(bytes)] = true;
    }
    let mut found = BTreeSet::new();
    for (place, haystack) in haystacks {
        let windows = haystack.windows(SHORTEST).enumerate();
        for (at, window) in windows.filter(|(_, window)| starts[pair(window)]) {
            for number in by_start.get(window).into_iter().flatten() {
                let (name, form, bytes) = &needles[*number];
                if haystack[at..].starts_with(bytes) {
                    found.insert((name.clone(), *form, place.clone()));
                }
            }
        }
    }
    found
}

/// What is shorter could be there by chance.
const SHORTEST: usize = 8;

/// The ways in which a text may be written down.
fn forms(text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut forms = vec![("as it is", text.as_bytes().to_vec())];
    let mut add = |form, text: String| forms.push((form, text.into_bytes()));
    let encoded: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    add("in a URL", encoded.replace('+', "%20"));
    add("in a form", encoded);
    let raw = URL_SAFE_NO_PAD.decode(text).ok();
    for bytes in [Some(text.as_bytes().to_vec()), raw.clone()].into_iter().flatten() {
        add("in hexadecimal", hexadecimal(&bytes));
        add("in hexadecimal", hexadecimal(&bytes).to_uppercase());
        add("as numbers", format!("{bytes:?}").trim_matches(['[', ']']).to_owned());
        for shift in 0..3 {
            add("in base64", in_base64(&bytes, shift));
            add("in base64", in_base64(&bytes, shift).replace('+', "-").replace('/', "_"));
        }
    }
    forms.extend(raw.map(|raw| ("as bytes", raw)));
    forms.retain(|(_, bytes)| bytes.len() >= SHORTEST);
    forms
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text");
        text
    })
}

/// What base64 makes of the bytes in the midst of others, without the letters that depend on those.
fn in_base64(bytes: &[u8], before: usize) -> String {
    let text = STANDARD_NO_PAD.encode([&vec![0; before], bytes].concat());
    let after = usize::from(!(before + bytes.len()).is_multiple_of(3));
    text[[0, 2, 3][before]..text.len() - after].to_owned()
}

/// A page gives back what its own form needs to be sent once more.
fn without_own_fields(html: &str) -> String {
    let own = |tag: &str| {
        ["token", "user_code", "login"].iter().any(|name| tag.contains(&format!(" name=\"{name}\"")))
    };
    let mut kept = String::new();
    for piece in html.split_inclusive('>') {
        match piece.rsplit_once("<input") {
            Some((before, tag)) if own(tag) => kept.push_str(before),
            _ => kept.push_str(piece),
        }
    }
    kept
}

/// A server, its database, and the issuers that it trusts.
struct Stage {
    hunt: Hunt,
    daemon: Daemon,
    folder: tempfile::TempDir,
    database: String,
    on: On,
    key: Key,
    issuer: TestIssuer,
    /// HTTP/1.1 and HTTP/2 have parsers, and log lines, of their own.
    clients: [reqwest::Client; 2],
    admin: String,
}

impl Stage {
    async fn new(on: On) -> Stage {
        let mut hunt = Hunt::default();
        let folder = tempfile::tempdir().expect("a folder");
        let key = Key::ed25519("e");
        let issuer = TestIssuer::start(&[&key]).await;
        let cluster = TestIssuer::start(&[&key]).await;
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let client_secret = file("client-secret", hunt.canary("secret of our client"));
        let own_token = file("own-token", hunt.plain_canary("our-token-for-reviews"));
        let sso = format!("client_id = \"pages\"\nclient_secret_file = \"{client_secret}\"");
        let reviewed = format!(
            "kind = \"service_account\"\nmode = \"token_review\"\napi_server = \"{}\"\ntoken_file = \"{own_token}\"",
            cluster.url
        );
        let sections = section("corporate", &issuer.url, &sso) + &section("cluster", &cluster.url, &reviewed);
        let config = file("paddockd.toml", sections);
        let database = match on {
            On::Sqlite => String::new(),
            On::Postgres => {
                let password = hunt.plain_canary("password-of-the-database");
                new_postgres_database().await.replacen('@', &format!(":{password}@"), 1)
            }
        };
        let flags = [
            "--config",
            &config,
            "--database-url",
            &database,
            "--limits-failed-authentications-per-minute",
            "100000",
            "--limits-body-bytes",
            "2048",
            "--devices-simulated",
            "true",
            "--devices-images",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../image"),
        ];
        let shown = paddockd().arg("config").args(flags).output().expect("output");
        assert!(shown.status.success(), "{shown:?}");
        hunt.search_in("paddockd config", [shown.stdout, shown.stderr].concat());
        let daemon = Daemon::start_talkative(&folder.path().join("data"), &flags, &folder.path().join("log"));
        let admin = daemon.token();
        hunt.keep_token("access token", &admin);
        let client = || reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let clients =
            [client(), client().http2_prior_knowledge()].map(|each| each.build().expect("a client"));
        let claims = cluster.account_claims(now());
        cluster.say_of_tokens(json!({
            "authenticated": true, "audiences": [AUDIENCE],
            "user": { "username": "system:serviceaccount:ci:runner", "uid": "u-1" },
        }));
        let mut stage = Stage { hunt, daemon, folder, database, on, key, issuer, clients, admin };
        let reviewed = stage.key.projected(&claims);
        stage.hunt.keep_token("token of a service account", &reviewed);
        stage.call("GET", "/api/v1/whoami", &reviewed, None).await.expect(200);
        cluster.answer_instead(Some((500, "not now")));
        let mut claims = claims;
        claims["jti"] = json!("t-2");
        let unclear = stage.key.projected(&claims);
        stage.hunt.keep_token("token that nobody can judge", &unclear);
        stage.call("GET", "/api/v1/whoami", &unclear, None).await.expect(503);
        stage
    }

    async fn send(&mut self, place: &str, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.expect("a body");
        self.hunt.heard(place, Answer { status, headers, text })
    }

    /// A call of the API. What it reads is looked through like an error.
    async fn call(&mut self, method: &str, path: &str, token: &str, body: Option<Value>) -> Answer {
        let verb = method.parse().expect("a method");
        let request = self.clients[1].request(verb, self.daemon.url(path)).bearer_auth(token);
        let request = body.into_iter().fold(request, |request, body| request.json(&body));
        let place = format!("{method} {path}");
        let answer = self.send(&place, request).await;
        if method == "GET" {
            self.hunt.search_in(&place, answer.text.clone());
        }
        answer
    }

    async fn form(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let request = self.clients[0].post(self.daemon.url(path)).form_fields(fields);
        self.send(path, request).await
    }

    fn browser(&self) -> Browser {
        Browser::at(self.daemon.url(""))
    }

    /// Fills a page's form; what the browser then holds is a secret.
    async fn fill(
        &mut self,
        browser: &mut Browser,
        page: &str,
        action: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let answer = browser.fill(page, action, fields).await;
        for (name, value) in &browser.cookies {
            self.hunt.keep(name, value);
        }
        self.hunt.heard(action, answer)
    }

    async fn sign_in(&mut self, browser: &mut Browser, login: &str, password: &str) -> Answer {
        self.fill(browser, "/sign-in?local=1", "/sign-in", &[("login", login), ("password", password)]).await
    }

    /// As it is now: much of what it holds is gone again a moment later.
    async fn look_at_database(&mut self, after: &str) {
        let place = format!("{DATABASE} after {after}");
        for entry in std::fs::read_dir(self.folder.path().join("data")).expect("files") {
            let path = entry.expect("a file").path();
            // Folders hold disks, of which there are none here.
            if path.is_file() && !path.ends_with("admin-password") {
                let bytes = std::fs::read(&path).expect("a file");
                self.hunt.search_in(&format!("{place}, {}", path.display()), bytes);
            }
        }
        if self.on == On::Postgres {
            let text = everything_in(&self.database).await;
            self.hunt.search_in(&place, text);
        }
    }

    async fn passwords(&mut self) -> Browser {
        let password = std::fs::read_to_string(self.folder.path().join("data/admin-password"));
        let password = password.expect("the password's file").trim().to_owned();
        self.hunt.keep("the first admin's password", &password);
        let mut browser = self.browser();
        let planted = self.hunt.plain_canary("planted-session");
        browser.cookies.insert(SESSION.to_owned(), planted);
        let (wrong, in_login) = (self.hunt.canary("wrong password"), self.hunt.canary("password as login"));
        for (login, password) in [("admin", &wrong), ("nobody", &wrong), (&in_login, &wrong)] {
            self.sign_in(&mut browser, login, password).await.expect(422);
        }
        // A form that lacks its token.
        let answer = browser.post("/sign-in", &[("login", "admin"), ("password", &wrong)]).await.expect(403);
        self.hunt.heard("/sign-in", answer);
        self.sign_in(&mut browser, "admin", &password).await.expect(303);
        self.look_at_database("a sign-in").await;

        let (new, other) = (self.hunt.canary("new password"), self.hunt.canary("another new password"));
        let short = "CANARYshort".to_owned();
        self.hunt.keep("short password", &short);
        for (old, new, repeated, status) in [
            (&wrong, &new, &new, 422),
            (&password, &new, &other, 422),
            (&password, &short, &short, 422),
            (&password, &new, &new, 200),
        ] {
            let fields = [("old_password", old.as_str()), ("password", new), ("repeated", repeated)];
            let page = "/account/password";
            self.fill(&mut browser, page, page, &fields).await.expect(status);
        }
        self.look_at_database("a new password").await;
        browser
    }

    async fn invitations(&mut self) {
        let admin = self.admin.clone();
        let key = "CANARY-idempotency-key".to_owned();
        self.hunt.stored.push(("idempotency key".to_owned(), key.clone()));
        let password = self.hunt.canary("password of an invited");
        for _ in 0..2 {
            let request = self.clients[1].post(self.daemon.url("/api/v1/users")).bearer_auth(&admin);
            let request = request.header("idempotency-key", &key).json(&json!({ "login": "ada" }));
            let answer = self.send("POST /api/v1/users", request).await.expect(201).json();
            let Some(url) = answer["invitation"]["url"].as_str() else { continue };
            let token = url.split_once('=').expect("a token").1;
            self.hunt.keep("invitation", token);
            self.look_at_database("an invitation").await;
            let id = answer["id"].as_str().expect("an id");
            let again = self.call("POST", &format!("/api/v1/users/{id}/invitations"), &admin, None).await;
            let again = again.expect(201).json()["url"].as_str().expect("a link").to_owned();
            self.hunt.keep("second invitation", again.split_once('=').expect("a token").1);

            let mut browser = self.browser();
            let guess = self.hunt.plain_canary("guessed-invitation");
            for gone in [url, &format!("/invitation?token={guess}")] {
                let answer = browser.get(gone).await.expect(404);
                self.hunt.heard("/invitation", answer);
            }
            let differ = [("password", password.as_str()), ("repeated", "CANARY something else")];
            self.fill(&mut browser, &again, "/invitation", &differ).await.expect(422);
            let fields = [("password", password.as_str()), ("repeated", &password)];
            self.fill(&mut browser, &again, "/invitation", &fields).await.expect(303);
        }
        self.look_at_database("an accepted invitation").await;
    }

    async fn programs(&mut self, browser: &mut Browser) {
        let verifier = self.hunt.plain_canary(&"verifier".repeat(6));
        let state = self.hunt.plain_canary("state");
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let query = [
            ("response_type", "code"),
            ("client_id", "paddock-cli"),
            ("redirect_uri", REDIRECT),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let page = format!(
            "/oauth/authorize?{}",
            form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish()
        );
        let mut last = String::new();
        let wrong = self.hunt.plain_canary(&"wrong-verifier".repeat(4));
        for (shown, status) in [(&wrong, 400), (&verifier, 200)] {
            let answer = self.fill(browser, &page, "/oauth/authorize", &[("decision", "allow")]).await;
            let location = url::Url::parse(answer.expect(303).header("location")).expect("an address");
            let (_, code) = location.query_pairs().find(|(name, _)| name == "code").expect("a code");
            self.hunt.keep("authorization code", &code);
            self.look_at_database("an authorization").await;
            let secret = self.hunt.canary("secret of a client that has none");
            let fields = [
                ("grant_type", "authorization_code"),
                ("client_id", "paddock-cli"),
                ("client_secret", &secret),
                ("redirect_uri", REDIRECT),
                ("code", &code),
                ("code_verifier", shown),
            ];
            let tokens = self.form("/oauth/token", &fields).await.expect(status);
            if status == 200 {
                last = self.keep_tokens(&tokens.json());
                self.look_at_database("a grant").await;
            }
        }
        let guess = self.hunt.plain_canary("guessed-refresh-token");
        let first = last.clone();
        for (token, status) in [(&first, 200), (&guess, 400)] {
            let fields =
                [("grant_type", "refresh_token"), ("client_id", "paddock-cli"), ("refresh_token", token)];
            let tokens = self.form("/oauth/token", &fields).await.expect(status);
            if status == 200 {
                last = self.keep_tokens(&tokens.json());
            }
        }
        for token in [&last, &guess] {
            let fields = [("token", token.as_str()), ("client_id", "paddock-cli")];
            self.form("/oauth/revoke", &fields).await.expect(200);
        }
        for token in [&last, &first] {
            let fields =
                [("grant_type", "refresh_token"), ("client_id", "paddock-cli"), ("refresh_token", token)];
            self.form("/oauth/token", &fields).await.expect(400);
        }
        let grant = self.hunt.plain_canary("grant-type");
        self.form("/oauth/token", &[("grant_type", &grant), ("client_id", &guess)]).await.expect(400);
        let twice = self.hunt.plain_canary("field-that-stands-twice");
        self.form("/oauth/token", &[("code", &twice), ("code", &twice)]).await.expect(400);
    }

    /// Returns the refresh token.
    fn keep_tokens(&mut self, tokens: &Value) -> String {
        self.hunt.keep_token("access token", tokens["access_token"].as_str().expect("a token"));
        let refresh = tokens["refresh_token"].as_str().expect("a token").to_owned();
        self.hunt.keep("refresh token", &refresh);
        refresh
    }

    async fn machines(&mut self, browser: &mut Browser) {
        for (decision, status) in [("deny", 400), ("allow", 200)] {
            let begun = self.form("/oauth/device_authorization", &[("client_id", "paddock-cli")]).await;
            let begun = begun.expect(200).json();
            let device_code = begun["device_code"].as_str().expect("a code");
            let user_code = begun["user_code"].as_str().expect("a code");
            self.hunt.keep("device code", device_code);
            self.hunt.keep("user code", user_code);
            self.hunt.keep("user code as it is kept", &user_code.replace('-', ""));
            self.look_at_database("a machine's question").await;
            let page = format!("/device?user_code={user_code}");
            self.fill(browser, &page, "/device", &[("decision", decision)]).await.expect(200);
            let answer = browser.get(&page).await.expect(404);
            self.hunt.heard("/device", answer);
            let grant = "urn:ietf:params:oauth:grant-type:device_code";
            let fields = [("grant_type", grant), ("client_id", "paddock-cli"), ("device_code", device_code)];
            let tokens = self.form("/oauth/token", &fields).await.expect(status);
            if status == 200 {
                self.keep_tokens(&tokens.json());
            }
            let guess = self.hunt.plain_canary("guessed-device-code");
            let fields =
                [("grant_type", grant), ("client_id", "paddock-cli"), ("device_code", guess.as_str())];
            self.form("/oauth/token", &fields).await.expect(400);
        }
        self.look_at_database("a machine's sign-in").await;
    }

    async fn api_keys(&mut self) {
        let admin = self.admin.clone();
        let tenant = self.call("POST", "/api/v1/tenants", &admin, Some(json!({ "name": "acme" }))).await;
        let body = json!({ "tenantId": tenant.expect(201).id(), "name": "ci", "scopes": ["device:read"] });
        let answer = self.call("POST", "/api/v1/api_keys", &admin, Some(body)).await.expect(201);
        let key = answer.json()["key"].as_str().expect("a key").to_owned();
        self.hunt.keep("API key", &key);
        // Its start tells the kind and is shown; this is what opens something.
        self.hunt.keep("middle of an API key", &key[8..key.len() - 4]);
        let id = answer.id();
        for path in ["/api/v1/tenants", "/v1/devices"] {
            let answer = self.call("GET", path, &key, None).await;
            assert!(matches!(answer.status.as_u16(), 401 | 404), "{answer:?}");
        }
        for path in ["/api/v1/api_keys".to_owned(), format!("/api/v1/api_keys/{id}")] {
            self.call("GET", &path, &admin, None).await.expect(200);
        }
        self.look_at_database("a key").await;
        self.call("DELETE", &format!("/api/v1/api_keys/{id}"), &admin, None).await.expect(204);
    }

    async fn tickets(&mut self) {
        let admin = self.admin.clone();
        let tenant = self.call("POST", "/api/v1/tenants", &admin, Some(json!({ "name": "devices" }))).await;
        let body = json!({ "tenantId": tenant.expect(201).id() });
        let mut made = self.call("POST", "/api/v1/emulators?wait=10", &admin, Some(body.clone())).await;
        for _ in 0..100 {
            if made.status == 201 {
                break;
            }
            // The image comes in a moment after the start.
            tokio::time::sleep(Duration::from_millis(100)).await;
            made = self.call("POST", "/api/v1/emulators?wait=10", &admin, Some(body.clone())).await;
        }
        let emulator = format!("/api/v1/emulators/{}", made.expect(201).id());
        for channel in ["adb", "display", "logs"] {
            let path = format!("{emulator}/tickets");
            let answer =
                self.call("POST", &path, &admin, Some(json!({ "channel": channel }))).await.expect(201);
            let ticket = answer.json()["ticket"].as_str().expect("a ticket").to_owned();
            self.hunt.keep(&format!("ticket for {channel}"), &ticket);
            // Right, then used up; what is wrong is said without it.
            for path in ["display", "adb/proxy", "adb/proxy"] {
                let url = self.daemon.url(&format!("{emulator}/{path}?ticket={ticket}"));
                let request = self.clients[0].get(url);
                let answer = self.send("a stream", request).await;
                assert!(matches!(answer.status.as_u16(), 400 | 401), "{answer:?}");
            }
        }
        self.look_at_database("tickets").await;
    }

    async fn identity_provider(&mut self) {
        let mut given = None;
        for good in [false, true] {
            let mut browser = self.browser();
            let there = browser.get("/sign-in").await.expect(303);
            for (name, value) in &browser.cookies {
                self.hunt.keep(name, value);
            }
            let there = url::Url::parse(there.header("location")).expect("an address");
            let asked: HashMap<_, _> = there.query_pairs().into_owned().collect();
            self.hunt.keep("state at the provider", &asked["state"]);
            let access = self.hunt.plain_canary("access-token-of-the-provider");
            let mut claims = self.issuer.claims(now(), "grace");
            (claims["aud"], claims["nonce"], claims["client_id"]) =
                (json!("pages"), json!(asked["nonce"]), json!("pages"));
            let mut token =
                self.key.sign(&json!({ "alg": "EdDSA", "kid": "e", "typ": "JWT" }), &claims.to_string());
            if !good {
                token.push_str("AAAA");
            }
            self.hunt.keep_token("identity token", &token);
            self.issuer
                .give_tokens(json!({ "id_token": token, "access_token": access, "token_type": "Bearer" }));
            let code = self.hunt.plain_canary("code-of-the-provider");
            let back = format!("/sign-in/callback?code={code}&state={}", asked["state"]);
            let answer = browser.get(&back).await;
            let answer = self.hunt.heard("/sign-in/callback", answer);
            assert_eq!(answer.status == 303, good, "{answer:?}");
            given = browser.cookies.get(SESSION).cloned();
        }
        self.hunt.keep("session by the provider", &given.expect("a session"));
        let mut browser = self.browser();
        browser.get("/sign-in").await.expect(303);
        let (code, state, error) = (
            self.hunt.plain_canary("foreign-code"),
            self.hunt.plain_canary("foreign-state"),
            self.hunt.plain_canary("foreign-error"),
        );
        let path = format!("/sign-in/callback?code={code}&state={state}&error={error}");
        for _ in 0..2 {
            let answer = browser.get(&path).await;
            assert!(answer.status.is_client_error(), "{answer:?}");
            self.hunt.heard("/sign-in/callback", answer);
            browser.cookies.clear();
        }
    }

    async fn credentials(&mut self) {
        let good = self.key.token(&self.issuer.claims(now(), "grace"));
        let old = self.key.token(&self.issuer.claims(now() - 3600, "grace"));
        self.hunt.keep_token("token of an issuer", &good);
        self.hunt.keep_token("expired token of an issuer", &old);
        self.call("GET", "/api/v1/whoami", &good, None).await.expect(200);
        self.call("GET", "/api/v1/permissions/me", &good, None).await.expect(200);
        let mut bad = vec![old];
        let signature = URL_SAFE_NO_PAD.encode(self.hunt.canary("signature"));
        for token in [&good, &self.admin] {
            let (unsigned, _) = token.rsplit_once('.').expect("segments");
            bad.push(format!("{unsigned}.{signature}"));
        }
        let unknown = json!({ "iss": "https://nobody.example", "sub": self.hunt.canary("subject") });
        bad.push(self.key.token(&unknown));
        for prefix in ["", "glpat-", "glcbt-", "ghp_", "github_pat_", "pdk_", "a.b."] {
            bad.push(prefix.to_owned() + &self.hunt.plain_canary("credential"));
        }
        let basic = STANDARD.encode(format!("admin:{}", self.hunt.canary("password as basic")));
        for token in bad.iter().map(|token| format!("Bearer {token}")).chain([
            format!("Basic {basic}"),
            self.hunt.plain_canary("no-scheme"),
            format!("Token {}", self.hunt.plain_canary("other-scheme")),
            format!("Bearer {}", self.hunt.canary("two words")),
        ]) {
            for client in self.clients.clone() {
                let body = json!({ "name": "x", "displayName": self.hunt.canary("display name") });
                let request = client.post(self.daemon.url("/api/v1/tenants")).json(&body);
                let request = request.header("authorization", &token);
                self.send("a bad credential", request).await.expect(401);
            }
        }
    }

    /// What is wrong is said, but what was sent is not repeated.
    async fn faulty_requests(&mut self) {
        let admin = self.admin.clone();
        let mut text = |name: &str| self.hunt.canary(name);
        let bodies = [
            ("users", json!({ "login": "x", "password": text("unknown member") })),
            ("users", json!({ "login": text("login"), "name": [text("list")] })),
            ("users", json!({ "login": { "secret": text("object") } })),
            ("users", json!({ "login": "joan", "email": text("email") })),
            ("tenants", json!({ "name": text("name"), "labels": { "token": [text("label")] } })),
            ("tenants", json!({ "name": "x", "token": text("token"), "secret": { "key": text("nested") } })),
            ("api_keys", json!({ "name": "x", "scopes": [text("scope")], "tenantId": text("tenant") })),
            ("api_keys", json!({ "key": text("key"), "name": "x", "scopes": ["device:read"] })),
            ("permissions/check", json!({ "relation": text("relation"), "object": text("object") })),
            ("permissions/check", json!({ "checks": [{ "relation": 1, "object": text("check") }] })),
            ("admins", json!({ "subject": text("subject of an admin") })),
            ("tenants", json!(text("no object"))),
        ];
        for (noun, body) in bodies {
            let answer = self.call("POST", &format!("/api/v1/{noun}"), &admin, Some(body)).await;
            assert!(answer.status.is_client_error(), "{answer:?}");
        }
        let canary = self.hunt.canary("text");
        for (kind, body) in [
            ("application/json", format!("{{\"name\": \"{canary}")),
            ("application/json", format!("{{\"name\": \"a\", \"name\": \"{canary}\"}}")),
            ("application/json", format!("{canary}: {{}}")),
            ("application/json", format!("{{\"name\": \"x\", \"displayName\": \"{}\"}}", canary.repeat(200))),
            ("text/plain", canary.clone()),
            ("application/x-www-form-urlencoded", format!("name={canary}")),
        ] {
            let request = self.clients[0].post(self.daemon.url("/api/v1/tenants")).bearer_auth(&admin);
            let answer = self.send("a faulty body", request.header("content-type", kind).body(body)).await;
            assert!(answer.status.is_client_error(), "{answer:?}");
        }
        let query = self.hunt.plain_canary("query");
        for path in [
            "/api/v1/tenants?access_token=",
            "/api/v1/tenants?limit=",
            "/api/v1/tenants?cursor=",
            "/api/v1/audit?tenantId=",
            "/api/v1/audit?since=",
            "/api/v1/permissions/check?object=tenant:*&relation=",
            "/api/v1/nowhere?token=",
            "/oauth/authorize?client_secret=",
            "/oauth/authorize?client_id=",
        ] {
            let request = self.clients[1].get(self.daemon.url(&format!("{path}{query}"))).bearer_auth(&admin);
            let answer = self.send(path, request).await;
            assert!(answer.status.is_client_error(), "{path}: {answer:?}");
        }
        let cookie = format!("{SESSION}={}", self.hunt.plain_canary("cookie"));
        let request = self.clients[0].get(self.daemon.url("/api/v1/whoami")).header("cookie", cookie);
        self.send("a cookie", request).await.expect(401);
    }

    /// Everything that can be read of the server.
    async fn read_everything(&mut self) {
        let admin = self.admin.clone();
        let (mut cursor, mut actions) = (String::new(), BTreeSet::new());
        loop {
            let path = format!("/api/v1/audit?limit=50{cursor}");
            let page = self.call("GET", &path, &admin, None).await.expect(200).json();
            let events = page["items"].as_array().expect("items").iter();
            actions.extend(events.map(|event| event["action"].as_str().expect("an action").to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        for action in [
            "api_keys.create",
            "authorizations.create",
            "invitations.accept",
            "passwords.update",
            "sessions.create",
            "tokens.create",
            "tokens.refresh",
            "users.create",
        ] {
            assert!(
                actions.contains(action),
                "{action} is not in {actions:?}: the stage does not do its part"
            );
        }
        for path in ["/api/v1/users", "/api/v1/admins", "/api/v1/whoami", "/-/openapi/schema"] {
            self.call("GET", path, &admin, None).await.expect(200);
        }
        let metrics = self.call("GET", "/-/metrics", &admin, None).await.expect(200);
        assert!(metrics.text.contains("paddock_"), "{}", metrics.text);
        self.call("GET", "/-/readyz?verbose", &admin, None).await;
        self.call("GET", "/-/version", &admin, None).await.expect(200);
    }

    /// A server that cannot start says why, but not by which password it tried.
    fn refused_starts(&mut self) {
        let password = self.hunt.plain_canary("password-of-another-database");
        for rest in ["127.0.0.1:1/none", "127.0.0.1:port/none", "[/none", "127.0.0.1:1/none?sslmode=no"] {
            let url = format!("postgres://paddock:{password}@{rest}");
            let output = paddockd()
                .args(["--listen", "127.0.0.1:0", "--log-level", "trace", "--database-url", &url, "--data"])
                .arg(self.folder.path().join("other"))
                .output()
                .expect("output");
            assert!(!output.status.success(), "{url} was accepted");
            self.hunt.search_in("a start that fails", [output.stdout, output.stderr].concat());
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(since.as_secs()).expect("a time")
}

/// Every row of every table, in text; bytes stand in hexadecimal.
async fn everything_in(database: &str) -> String {
    const TABLES: &str = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
    let (client, connection) =
        tokio_postgres::connect(database, tokio_postgres::NoTls).await.expect("a server");
    tokio::spawn(connection);
    let mut text = String::new();
    for table in client.query(TABLES, &[]).await.expect("tables") {
        let table: &str = table.get(0);
        let rows = client.query(&format!("SELECT t::text FROM {table} t"), &[]).await.expect("rows");
        for row in rows {
            writeln!(text, "{table} {}", row.get::<_, &str>(0)).expect("text");
        }
    }
    text
}

/// The private halves, in base64.
async fn signing_keys(database: &str) -> Vec<String> {
    let (client, connection) =
        tokio_postgres::connect(database, tokio_postgres::NoTls).await.expect("a server");
    tokio::spawn(connection);
    let rows = client.query("SELECT private FROM signing_keys", &[]).await.expect("keys");
    assert!(!rows.is_empty());
    rows.iter().map(|row| URL_SAFE_NO_PAD.encode(row.get::<_, &[u8]>(0))).collect()
}

/// How the hash of every password begins.
const PASSWORD_HASH: &str = "$argon2id$v=19";

async fn hunt_on(on: On) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut stage = Stage::new(on).await;
    let mut browser = stage.passwords().await;
    stage.invitations().await;
    stage.programs(&mut browser).await;
    stage.machines(&mut browser).await;
    stage.api_keys().await;
    stage.tickets().await;
    stage.identity_provider().await;
    stage.credentials().await;
    stage.faulty_requests().await;
    stage.fill(&mut browser, "/", "/sign-out", &[]).await.expect(303);
    stage.read_everything().await;
    stage.look_at_database("everything").await;
    stage.refused_starts();
    stage.daemon.signal("-TERM");
    assert!(stage.daemon.child.wait().expect("a status").success());

    let log = std::fs::read(stage.folder.path().join("log")).expect("the log");
    let text = String::from_utf8_lossy(&log);
    assert!(
        text.contains("\"TRACE\"") && text.contains("\"request_id\""),
        "the log does not tell everything"
    );
    stage.hunt.haystacks.insert(0, ("the log".to_owned(), log));
    stage.hunt.stored.push(("hash of a password".to_owned(), PASSWORD_HASH.to_owned()));
    if on == On::Postgres {
        for key in signing_keys(&stage.database).await {
            stage.hunt.stored.push(("signing key".to_owned(), key));
        }
    }
    let hashes = search(&stage.hunt.stored, &stage.hunt.haystacks);
    let place = format!("{DATABASE} after everything");
    let was_read = |(name, _, at): &Found| name == "hash of a password" && at.starts_with(&place);
    assert!(hashes.iter().any(was_read), "the database was not read: {hashes:?}");

    stage.hunt.check_itself();
    let found = stage.hunt.found();
    assert!(found.is_empty(), "{} secrets are where they must not be: {found:#?}", found.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_anywhere_on_sqlite() {
    hunt_on(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_anywhere_on_postgresql() {
    hunt_on(On::Postgres).await;
}

/// The members of answers that hold a secret, or are named as if they did. A new one needs a reason to stand here.
const NAMED_LIKE_SECRETS: &[(&str, &str)] = &[
    // Told once, to who has made it.
    ("ApiKey", "key"),
    ("Invitation", "url"),
    ("Ticket", "ticket"),
    // What OAuth gives to programs (RFC 6749, 8628), and what it tells about itself (RFC 8414).
    ("AuthorizationServer", "code_challenge_methods_supported"),
    ("AuthorizationServer", "token_endpoint"),
    ("AuthorizationServer", "token_endpoint_auth_methods_supported"),
    ("DeviceAuthorizationAnswer", "device_code"),
    ("DeviceAuthorizationAnswer", "user_code"),
    ("TokenAnswer", "access_token"),
    ("TokenAnswer", "refresh_token"),
    ("TokenAnswer", "token_type"),
    // Public keys.
    ("KeySet", "keys"),
    // About a credential: its kind, its id, its end.
    ("Event", "credential"),
    ("Event", "credentialId"),
    ("PermissionSummary", "credential"),
    ("Whoami", "credential"),
    // The name under which jobs leave captures and look for them.
    ("EmulatorCapture", "key"),
    ("EmulatorRestore", "key"),
    ("SnapshotOrigin", "key"),
    // What has happened, for programs.
    ("TransferError", "code"),
    ("CheckError", "code"),
    ("StatusReason", "code"),
    ("AdbEndpoint", "webSocketUrl"),
    ("DisplayEndpoint", "webSocketUrl"),
    ("Event", "code"),
    ("Fault", "code"),
    ("Obstacle", "code"),
    ("Problem", "code"),
];

#[test]
fn answers_hold_no_secret_but_the_documented_ones() {
    const NAMES: &[&str] =
        &["token", "secret", "password", "credential", "key", "code", "url", "digest", "hash", "ticket"];
    let contract = Contract::new();
    let mut found = BTreeSet::new();
    for (_, _, operation) in contract.operations() {
        for response in operation["responses"].as_object().expect("responses").values() {
            for content in contract.resolve(response)["content"].as_object().into_iter().flatten() {
                members(&contract, "", &content.1["schema"], &mut BTreeSet::new(), &mut |schema, member| {
                    // By words: `keepHourly` holds no url.
                    if words_of(member).iter().any(|word| NAMES.contains(&word.trim_end_matches('s'))) {
                        found.insert((schema.to_owned(), member.to_owned()));
                    }
                });
            }
        }
    }
    let documented: BTreeSet<(String, String)> =
        NAMED_LIKE_SECRETS.iter().map(|(schema, member)| ((*schema).into(), (*member).into())).collect();
    assert_eq!(found, documented);
}

/// The words of a name in camelCase or snake_case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("the first word").extend(letter.to_lowercase());
        }
    }
    words
}

/// Tells each member of a schema and of all below it, with the name of the schema that has it.
fn members(
    contract: &Contract,
    name: &str,
    schema: &Value,
    seen: &mut BTreeSet<String>,
    tell: &mut dyn FnMut(&str, &str),
) {
    if !schema.is_object() {
        return;
    }
    let mut name = name;
    if let Some(reference) = schema["$ref"].as_str() {
        if !seen.insert(reference.to_owned()) {
            return;
        }
        name = reference.rsplit('/').next().unwrap_or_default();
    }
    let schema = contract.resolve(schema);
    for (member, inner) in schema["properties"].as_object().into_iter().flatten() {
        tell(name, member);
        members(contract, name, inner, seen, tell);
    }
    for inner in ["items", "additionalProperties", "propertyNames"] {
        members(contract, name, &schema[inner], seen, tell);
    }
    for several in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        for inner in schema[several].as_array().into_iter().flatten() {
            members(contract, name, inner, seen, tell);
        }
    }
}
