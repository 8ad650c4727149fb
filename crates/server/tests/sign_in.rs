//! Sign-in as people and programs meet it, and as attackers try it.

mod browser;
mod world;

use std::collections::HashMap;
use std::time::Duration;

use browser::{Browser, Form, hidden};
use paddock_engine::audit;
use paddock_engine::reconcile::{self, LOOPS};
use paddock_engine::users::{self, NewUser};
use paddock_model::audit::EventFilter;
use paddock_model::caller::Caller;
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::expected::Expected;
use paddock_model::page::PageRequest;
use paddock_model::subjects::Subject;
use paddock_model::users::UserSpec;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use world::{Answer, BOTH, On, World};

const MANY: &[&str] = &["--limits-failed-authentications-per-minute", "100000"];
const PHRASE: &str = "a phrase that is long enough";

fn password(world: &World) -> String {
    let file = world.folder.path().join("admin-password");
    std::fs::read_to_string(file).expect("the password").trim().to_owned()
}

async fn admin(world: &World) -> Caller {
    let admin = users::first_admin(&world.server.engine).await.expect("the admin");
    Caller {
        subject: Subject::from(&admin),
        credential: std::sync::Arc::new(Credential::new(CredentialKind::AccessToken)),
        address: None,
        request_id: "test".into(),
        once: None,
    }
}

/// The actions in the audit, oldest first, with the code of a refusal.
async fn actions(world: &World) -> Vec<String> {
    let page = PageRequest { limit: 200, after: None };
    let filter = EventFilter::default();
    let events =
        audit::list(&world.server.engine, &admin(world).await, &filter, page).await.expect("the audit");
    let mut events = events.items;
    // Images are brought in meanwhile, by nobody.
    events.retain(|event| event.action != "snapshots.import");
    events.sort_by_key(|event| event.number);
    let named = events.iter().map(|event| match &event.code {
        Some(code) => format!("{} {code}", event.action),
        None => event.action.clone(),
    });
    named.collect()
}

async fn world(on: On) -> World {
    World::with(on, MANY, LOOPS).await
}

/// A client with a verifier, and what it asks for.
struct Program {
    verifier: String,
    query: Vec<(&'static str, String)>,
}

const REDIRECT: &str = "http://127.0.0.1:40123/callback";

impl Program {
    fn new() -> Self {
        let verifier = "v".repeat(64);
        let challenge = base64url(digest(&SHA256, verifier.as_bytes()).as_ref());
        let query = vec![
            ("response_type", "code".to_owned()),
            ("client_id", "paddock-cli".to_owned()),
            ("redirect_uri", REDIRECT.to_owned()),
            ("state", "a state & more".to_owned()),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256".to_owned()),
        ];
        Program { verifier, query }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.query.retain(|(known, _)| *known != name);
        self.query.push((name, value.to_owned()));
        self
    }

    fn path(&self) -> String {
        let mut text = form_urlencoded::Serializer::new("/oauth/authorize?".to_owned());
        for (name, value) in &self.query {
            text.append_pair(name, value);
        }
        text.finish()
    }

    /// The person allows it; returns what the program is told.
    async fn authorize(&self, browser: &mut Browser) -> HashMap<String, String> {
        let answer = browser.fill(&self.path(), "/oauth/authorize", &[("decision", "allow")]).await;
        told(&answer.expect(303))
    }

    async fn redeem(&self, world: &World, code: &str) -> Answer {
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", "paddock-cli"),
            ("redirect_uri", REDIRECT),
            ("code", code),
            ("code_verifier", &self.verifier),
        ];
        token(world, &fields).await
    }
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn told(answer: &Answer) -> HashMap<String, String> {
    let location = answer.header("location");
    let (to, query) = location.split_once('?').unwrap_or((location, ""));
    assert_eq!(to, REDIRECT, "{location}");
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

async fn token(world: &World, fields: &[(&str, &str)]) -> Answer {
    world.send(world.anonymous("POST", "/oauth/token").form_fields(fields)).await
}

async fn refresh(world: &World, refresh_token: &str) -> Answer {
    let fields =
        [("grant_type", "refresh_token"), ("client_id", "paddock-cli"), ("refresh_token", refresh_token)];
    token(world, &fields).await
}

fn error(answer: &Answer) -> String {
    answer.json()["error"].as_str().expect("an OAuth error").to_owned()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}")).to_owned()
}

async fn tokens(world: &World, browser: &mut Browser) -> Value {
    let program = Program::new();
    let told = program.authorize(browser).await;
    program.redeem(world, &told["code"]).await.expect(200).json()
}

#[tokio::test]
async fn a_person_signs_in_and_out() {
    for on in BOTH {
        let world = world(on).await;
        let mut browser = Browser::new(&world);
        browser.origin = Some(world.url(""));
        assert_eq!(browser.get("/").await.expect(303).header("location"), "/sign-in");
        let page = browser.get("/sign-in").await.expect(200);
        let policy = page.header("content-security-policy");
        for rule in ["default-src 'none'", "form-action 'self';", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(policy.contains(rule), "{policy}");
        }
        for part in [
            "autocomplete=\"username\"",
            "autocomplete=\"current-password\"",
            "aria-live",
            "<label for=\"login\"",
        ] {
            assert!(page.text.contains(part), "{part}");
        }
        assert!(!page.text.contains("<script") && !page.text.contains("style="));

        let wrong = browser.sign_in("admin", "not the password").await.expect(422);
        assert!(wrong.text.contains("The login or the password is wrong."));
        let nobody = browser.sign_in("nobody", "not the password").await.expect(422);
        assert_eq!(
            wrong.text.replace("admin", "nobody").len(),
            nobody.text.len(),
            "an account can be told from none"
        );
        assert_eq!(browser.sign_in("admin", &password(&world)).await.expect(303).header("location"), "/");
        assert!(browser.is_signed_in().await);

        let copied = browser.session().expect("a session").clone();
        browser.fill("/", "/sign-out", &[]).await.expect(303);
        assert!(browser.session().is_none());
        browser.cookies.insert("__Host-paddock-session".to_owned(), copied);
        assert!(!browser.is_signed_in().await, "a copy of the cookie outlives the sign-out");
        let expected = [
            "users.create",
            "sessions.create wrong_password",
            "sessions.create wrong_password",
            "sessions.create",
            "sessions.delete",
        ];
        assert_eq!(actions(&world).await, expected);
    }
}

#[tokio::test]
async fn a_form_that_is_not_ours_is_refused() {
    let world = world(On::Sqlite).await;
    let secret = password(&world);
    let fields = [("login", "admin"), ("password", secret.as_str())];
    let mut browser = Browser::new(&world);
    browser.post("/sign-in", &fields).await.expect(403);
    browser.get("/sign-in").await.expect(200);
    browser.post("/sign-in", &fields).await.expect(403);
    browser
        .fill("/sign-in", "/sign-in", &[&fields[..], &[("form_token", "wrong")]].concat())
        .await
        .expect(403);
    // The token of another browser.
    let mut other = Browser::new(&world);
    let token = hidden(&other.get("/sign-in").await.text)[0].1.clone();
    browser
        .fill("/sign-in", "/sign-in", &[&fields[..], &[("form_token", &token)]].concat())
        .await
        .expect(403);
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        browser.origin = Some(origin.to_owned());
        browser.sign_in("admin", &secret).await.expect(403);
    }
    browser.origin = None;
    let request =
        browser.http.post(world.url("/sign-in")).header("sec-fetch-site", "cross-site").form_fields(&fields);
    browser.send(request).await.expect(403);
    assert!(browser.session().is_none());
    browser.sign_in("admin", &secret).await.expect(303);
    for path in ["/sign-out", "/account/password", "/oauth/authorize", "/device"] {
        browser.post(path, &[("decision", "allow")]).await.expect(403);
    }
    assert!(browser.is_signed_in().await);
}

#[tokio::test]
async fn nobody_can_plant_a_session() {
    let world = world(On::Sqlite).await;
    let mut browser = Browser::new(&world);
    let planted = "planted-by-somebody-else".to_owned();
    browser.cookies.insert("__Host-paddock-session".to_owned(), planted.clone());
    browser.sign_in("admin", &password(&world)).await.expect(303);
    let first = browser.session().expect("a session").clone();
    assert_ne!(first, planted);
    // Signing in once more changes it, and the one before is over.
    browser
        .fill("/sign-in?again=1", "/sign-in", &[("login", "admin"), ("password", &password(&world))])
        .await
        .expect(303);
    assert_ne!(browser.session().expect("a session"), &first);
    for gone in [planted, first] {
        let mut thief = Browser::new(&world);
        thief.cookies.insert("__Host-paddock-session".to_owned(), gone);
        assert!(!thief.is_signed_in().await);
    }
}

#[tokio::test]
async fn a_session_ends_by_itself() {
    let world = World::with(On::Sqlite, MANY, &[]).await;
    let mut browser = Browser::new(&world);
    browser.sign_in("admin", &password(&world)).await.expect(303);
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    world.clock.advance(hours(7));
    assert!(browser.is_signed_in().await);
    world.clock.advance(hours(7));
    assert!(browser.is_signed_in().await, "its use has not prolonged it");
    world.clock.advance(hours(8));
    assert!(!browser.is_signed_in().await, "nobody has used it for eight hours");
    browser.sign_in("admin", &password(&world)).await.expect(303);
    for _ in 0..(30 * 24 / 6 - 1) {
        world.clock.advance(hours(6));
        assert!(browser.is_signed_in().await);
    }
    world.clock.advance(hours(6));
    assert!(!browser.is_signed_in().await, "it has lasted for a month");
    let report = (reconcile::sign_ins::LOOP.run)(&world.server.engine).await.expect("a run");
    assert!(report.changed > 0);
}

#[tokio::test]
async fn a_sign_in_returns_to_this_server_only() {
    let world = world(On::Sqlite).await;
    let secret = password(&world);
    for (return_to, location) in [
        ("/device?user_code=WDJB-MJHT", "/device?user_code=WDJB-MJHT"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/%5Cevil.example", "/"),
        ("https:evil.example", "/"),
        ("https://good@evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("", "/"),
    ] {
        let mut browser = Browser::new(&world);
        let query: String = form_urlencoded::byte_serialize(return_to.as_bytes()).collect();
        let page = format!("/sign-in?return_to={query}");
        let fields = [("login", "admin"), ("password", secret.as_str()), ("return_to", return_to)];
        let answer = browser.fill(&page, "/sign-in", &fields).await.expect(303);
        assert_eq!(answer.header("location"), location, "{return_to:?}");
        assert_eq!(browser.get(&page).await.expect(303).header("location"), location, "{return_to:?}");
    }
}

#[tokio::test]
async fn guesses_cost_longer_and_longer() {
    for on in BOTH {
        let world = world(on).await;
        let mut browser = Browser::new(&world);
        for _ in 0..5 {
            browser.sign_in("admin", "a wrong password").await.expect(422);
        }
        let paused = browser.sign_in("admin", &password(&world)).await.expect(429);
        assert_eq!(paused.header("retry-after"), "2");
        assert!(
            paused.text.contains("Too many wrong passwords") && paused.text.contains("in 2 s"),
            "{}",
            paused.text
        );
        world.clock.advance(Duration::from_secs(2));
        browser.sign_in("admin", "a wrong password").await.expect(422);
        assert_eq!(browser.sign_in("admin", &password(&world)).await.expect(429).header("retry-after"), "4");
        world.clock.advance(Duration::from_secs(4));
        browser.sign_in("admin", &password(&world)).await.expect(303);
        assert!(actions(&world).await.contains(&"sessions.create account_paused".to_owned()));
    }
    let limited = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "2"], LOOPS).await;
    let mut browser = Browser::new(&limited);
    for status in [422, 422, 429] {
        browser.sign_in("nobody", "a wrong password").await.expect(status);
    }
    let over = browser.sign_in("admin", &password(&limited)).await.expect(429);
    assert!(browser.session().is_none() && !over.header("retry-after").is_empty(), "{over:?}");
    let refused = actions(&limited).await.into_iter().filter(|action| action.starts_with("sessions."));
    assert_eq!(refused.count(), 2, "what is not tried is not written down");
    // The right one costs nothing.
    let limited = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "2"], LOOPS).await;
    for _ in 0..4 {
        Browser::new(&limited).sign_in("admin", &password(&limited)).await.expect(303);
    }
}

#[tokio::test]
async fn no_more_is_tried_at_once_than_one_after_another() {
    for on in BOTH {
        let world = world(on).await;
        for login in ["admin", "nobody"] {
            let mut browser = Browser::new(&world);
            let token = hidden(&browser.get("/sign-in").await.text)[0].1.clone();
            let cookie = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).next();
            let fields = [("login", login), ("password", "a wrong password"), ("form_token", &token)];
            let guess = world.anonymous("POST", "/sign-in").header("cookie", cookie.expect("a cookie"));
            let guess = guess.form_fields(&fields);
            let guesses: Vec<_> =
                (0..30).map(|_| tokio::spawn(guess.try_clone().expect("a request").send())).collect();
            let mut statuses = HashMap::new();
            for guess in guesses {
                let status = guess.await.expect("a task").expect("an answer").status().as_u16();
                *statuses.entry(status).or_insert(0) += 1;
            }
            assert_eq!(statuses, HashMap::from([(422, 5), (429, 25)]), "{on:?} {login}");
        }
    }
}

#[tokio::test]
async fn nobody_locks_another_out() {
    for on in BOTH {
        let flags = [MANY, &["--proxies-trusted", "127.0.0.1"]].concat();
        let world = World::with(on, &flags, LOOPS).await;
        let mut stranger = Browser::from_address(&world, "2001:db8::1");
        // Whether there is such an account cannot be told.
        for login in ["admin", "nobody"] {
            for _ in 0..5 {
                stranger.sign_in(login, "a wrong password").await.expect(422);
            }
            assert_eq!(stranger.sign_in(login, "any").await.expect(429).header("retry-after"), "2");
        }
        let mut neighbour = Browser::from_address(&world, "2001:db8::2");
        neighbour.sign_in("admin", &password(&world)).await.expect(429);
        let mut owner = Browser::from_address(&world, "198.51.100.1");
        owner.sign_in("admin", &password(&world)).await.expect(303);
        stranger.sign_in("admin", &password(&world)).await.expect(429);
        // What was long ago counts no more, and goes.
        world.clock.advance(Duration::from_secs(3601));
        for _ in 0..4 {
            stranger.sign_in("admin", "a wrong password").await.expect(422);
        }
        stranger.sign_in("admin", &password(&world)).await.expect(303);
        world.clock.advance(Duration::from_secs(3601));
        (reconcile::sign_ins::LOOP.run)(&world.server.engine).await.expect("a run");
        let again = (reconcile::sign_ins::LOOP.run)(&world.server.engine).await.expect("a run");
        assert_eq!(again.changed, 0);
    }
}

#[tokio::test]
async fn guesses_from_everywhere_are_slowed_down() {
    let flags = [MANY, &["--proxies-trusted", "127.0.0.1"]].concat();
    let world = World::with(On::Sqlite, &flags, LOOPS).await;
    for number in 0..25 {
        let mut one = Browser::from_address(&world, &format!("198.51.100.{number}"));
        for _ in 0..4 {
            one.sign_in("admin", "a wrong password").await.expect(422);
        }
    }
    let mut owner = Browser::from_address(&world, "203.0.113.1");
    assert_eq!(owner.sign_in("admin", &password(&world)).await.expect(429).header("retry-after"), "2");
    world.clock.advance(Duration::from_secs(2));
    owner.sign_in("admin", &password(&world)).await.expect(303);
}

#[tokio::test]
async fn a_new_password_and_a_refresh_do_not_trip_over_each_other() {
    for on in BOTH {
        let world = world(on).await;
        let mut old = password(&world);
        for round in 0..4 {
            let (mut here, mut there) = (Browser::new(&world), Browser::new(&world));
            here.sign_in("admin", &old).await.expect(303);
            there.sign_in("admin", &old).await.expect(303);
            let mut codes = Vec::new();
            let program = Program::new();
            for _ in 0..4 {
                codes.push(program.authorize(&mut there).await["code"].clone());
            }
            let mut refreshed = Vec::new();
            for _ in 0..4 {
                refreshed.push(text(&tokens(&world, &mut there).await, "refresh_token"));
            }
            let new = format!("{PHRASE} {round}");
            let fields = [("old_password", old.as_str()), ("password", &new), ("repeated", &new)];
            let change = here.fill("/account/password", "/account/password", &fields);
            let use_all = async {
                for _ in 0..30 {
                    for token in &mut refreshed {
                        let answer = refresh(&world, token).await;
                        match answer.status.as_u16() {
                            200 => *token = text(&answer.json(), "refresh_token"),
                            _ => assert_eq!(error(&answer.expect(400)), "invalid_grant"),
                        }
                    }
                    if let Some(code) = codes.pop() {
                        let answer = program.redeem(&world, &code).await;
                        assert!(matches!(answer.status.as_u16(), 200 | 400), "{answer:?}");
                    }
                }
            };
            let (changed, ()) = tokio::join!(change, use_all);
            changed.expect(200);
            for token in &refreshed {
                assert_eq!(error(&refresh(&world, token).await.expect(400)), "invalid_grant");
            }
            old = new;
        }
    }
}

#[tokio::test]
async fn garbage_is_counted_and_written_down_within_limits() {
    let limited = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "3"], LOOPS).await;
    for status in [400, 400, 400, 429] {
        refresh(&limited, "garbage").await.expect(status);
    }
    let refused = actions(&limited).await.into_iter().filter(|it| it == "tokens.create invalid_grant");
    assert_eq!(refused.count(), 3);
    let limited = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "3"], LOOPS).await;
    for status in [200, 200, 200, 429] {
        let request = limited.anonymous("POST", "/oauth/revoke");
        let fields = [("client_id", "paddock-cli"), ("token", "garbage")];
        limited.send(request.form_fields(&fields)).await.expect(status);
    }
    let limited = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "3"], LOOPS).await;
    let mut browser = Browser::new(&limited);
    for status in [404, 404, 404, 429] {
        browser.get("/invitation?token=garbage").await.expect(status);
    }
    let refused = actions(&limited).await.into_iter().filter(|it| it == "invitations.accept invitation_over");
    assert_eq!(refused.count(), 3);
}

#[tokio::test]
async fn a_deleted_key_verifies_nothing() {
    let database = world::new_postgres_database().await;
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let world = World::on_database(folder, &database, MANY, &[]).await;
    let whoami = async || world.call("GET", "/api/v1/whoami", None).await;
    whoami().await.expect(200);
    let (client, connection) =
        tokio_postgres::connect(&database, tokio_postgres::NoTls).await.expect("a database");
    tokio::spawn(connection);
    client.batch_execute("DELETE FROM signing_keys").await.expect("no key");
    world.clock.advance(Duration::from_secs(61));
    whoami().await.expect(401);
}

#[tokio::test]
async fn a_new_password_ends_every_other_sign_in() {
    for on in BOTH {
        let world = world(on).await;
        let (mut here, mut elsewhere) = (Browser::new(&world), Browser::new(&world));
        for browser in [&mut here, &mut elsewhere] {
            browser.sign_in("admin", &password(&world)).await.expect(303);
        }
        let refresh_token = text(&tokens(&world, &mut elsewhere).await, "refresh_token");
        let old = password(&world);
        for (old, new, repeated, words) in [
            ("wrong", PHRASE, PHRASE, "The password until now is another one."),
            (old.as_str(), PHRASE, "another phrase entirely", "The two new passwords differ."),
            (old.as_str(), "short", "short", "The password needs at least 12 characters."),
        ] {
            let fields = [("old_password", old), ("password", new), ("repeated", repeated)];
            let refused = here.fill("/account/password", "/account/password", &fields).await.expect(422);
            assert!(refused.text.contains(words), "{words}: {}", refused.text);
        }
        let fields = [("old_password", old.as_str()), ("password", PHRASE), ("repeated", PHRASE)];
        here.fill("/account/password", "/account/password", &fields).await.expect(200);
        assert!(here.is_signed_in().await && !elsewhere.is_signed_in().await);
        assert_eq!(error(&refresh(&world, &refresh_token).await.expect(400)), "invalid_grant");
        elsewhere.sign_in("admin", &old).await.expect(422);
        elsewhere.sign_in("admin", PHRASE).await.expect(303);
        for action in ["passwords.update wrong_password", "passwords.update"] {
            assert!(actions(&world).await.contains(&action.to_owned()), "{action}");
        }
    }
}

#[tokio::test]
async fn an_invitation_works_once() {
    for on in BOTH {
        let world = world(on).await;
        let new = NewUser { login: "ada".to_owned(), name: "Ada <b>".to_owned(), email: None };
        let (ada, invited) =
            users::create(&world.server.engine, &admin(&world).await, new).await.expect("an account");
        let page = format!("/invitation?token={}", invited.expect("an invitation").token.reveal());
        let mut browser = Browser::new(&world);
        let shown = browser.get(&page).await.expect(200);
        assert!(shown.text.contains("Ada &lt;b&gt;") && shown.header("referrer-policy") == "strict-origin");
        let weak = [("password", "ada"), ("repeated", "ada")];
        browser.fill(&page, "/invitation", &weak).await.expect(422);
        let fields = [("password", PHRASE), ("repeated", PHRASE)];
        let again = hidden(&browser.get(&page).await.text);
        browser.fill(&page, "/invitation", &fields).await.expect(303);
        assert!(browser.get("/").await.expect(200).text.contains("Ada &lt;b&gt;"));
        browser.get(&page).await.expect(404);
        let mut other = Browser::new(&world);
        other.get(&page).await.expect(404);
        let own = hidden(&other.get("/sign-in").await.text)[0].1.clone();
        let token = &again.iter().find(|(name, _)| name == "token").expect("the token").1;
        let all = [&fields[..], &[("token", token), ("form_token", &own)]].concat();
        other.post("/invitation", &all).await.expect(404);
        other.sign_in("ada", PHRASE).await.expect(303);

        let mut program = Browser::new(&world);
        program.sign_in("ada", PHRASE).await.expect(303);
        let refresh_token = text(&tokens(&world, &mut program).await, "refresh_token");
        let spec = UserSpec { name: "Ada".to_owned(), email: None, disabled: Some(true) };
        users::update(&world.server.engine, &admin(&world).await, ada.id, spec, &Expected::Any)
            .await
            .expect("disabled");
        assert!(!browser.is_signed_in().await);
        assert_eq!(error(&refresh(&world, &refresh_token).await.expect(400)), "invalid_grant");
        program.get("/sign-in").await.expect(200);
        program.sign_in("ada", PHRASE).await.expect(422);
    }
}

#[tokio::test]
async fn a_program_gets_tokens_by_a_browser() {
    for on in BOTH {
        let world = world(on).await;
        let program = Program::new();
        let mut browser = Browser::new(&world);
        let to_sign_in = browser.get(&program.path()).await.expect(303);
        let page = to_sign_in.header("location").to_owned();
        assert!(page.starts_with("/sign-in?return_to=%2Foauth%2Fauthorize"), "{page}");
        let fields = [("login", "admin"), ("password", &password(&world))];
        let back = browser.fill(&page, "/sign-in", &fields).await.expect(303).header("location").to_owned();
        assert_eq!(back, program.path());
        let consent = browser.get(&back).await.expect(200);
        assert!(consent.text.contains("The paddock command line"));
        assert!(
            consent.header("content-security-policy").contains("form-action 'self' http://127.0.0.1:40123;")
        );

        let denied = browser.fill(&back, "/oauth/authorize", &[("decision", "deny")]).await.expect(303);
        assert_eq!(told(&denied)["error"], "access_denied");
        let told = program.authorize(&mut browser).await;
        assert_eq!(
            (told["state"].as_str(), told["iss"].as_str()),
            ("a state & more", world.url("").as_str())
        );
        let answer = program.redeem(&world, &told["code"]).await.expect(200);
        assert_eq!(answer.header("cache-control"), "no-store");
        let tokens = answer.json();
        assert_eq!((&tokens["token_type"], &tokens["expires_in"]), (&"Bearer".into(), &900.into()));
        let whoami = world.anonymous("GET", "/api/v1/whoami").bearer_auth(text(&tokens, "access_token"));
        world.send(whoami).await.expect(200);

        // The same code once more: whoever has it also may have the tokens, so they end.
        assert_eq!(error(&program.redeem(&world, &told["code"]).await.expect(400)), "invalid_grant");
        assert_eq!(
            error(&refresh(&world, &text(&tokens, "refresh_token")).await.expect(400)),
            "invalid_grant"
        );
        let actions = actions(&world).await;
        for action in ["authorizations.create", "tokens.create", "tokens.reuse"] {
            assert!(actions.contains(&action.to_owned()), "{action} in {actions:?}");
        }
    }
}

#[tokio::test]
async fn a_program_that_asks_wrongly_gets_no_code() {
    let world = world(On::Sqlite).await;
    let mut browser = Browser::new(&world);
    browser.sign_in("admin", &password(&world)).await.expect(303);
    // Nobody is sent to a place that the client may not use.
    for (name, value) in [
        ("client_id", "somebody"),
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://localhost:40123/callback"),
        ("redirect_uri", "http://127.0.0.1:40123/elsewhere"),
        ("redirect_uri", "http://127.0.0.1:40123@evil.example/callback"),
        ("redirect_uri", ""),
    ] {
        let refused = browser.get(&Program::new().with(name, value).path()).await.expect(400);
        assert_eq!(refused.header("location"), "", "{name}={value}");
    }
    browser.get(&format!("{}&client_id=paddock-cli", Program::new().path())).await.expect(400);
    for (name, value, expected) in [
        ("code_challenge_method", "plain", "invalid_request"),
        ("code_challenge_method", "", "invalid_request"),
        ("code_challenge", "", "invalid_request"),
        ("code_challenge", "too-short", "invalid_request"),
        ("response_type", "token", "unsupported_response_type"),
    ] {
        let told = told(&browser.get(&Program::new().with(name, value).path()).await.expect(303));
        assert_eq!(told["error"], expected, "{name}={value}");
        assert_eq!(told["state"], "a state & more");
    }
    // The form that is sent in is checked as much as the page.
    let fields = [("decision", "allow"), ("redirect_uri", "https://evil.example/callback")];
    browser.fill(&Program::new().path(), "/oauth/authorize", &fields).await.expect(400);
    let fields = [("decision", "allow"), ("code_challenge_method", "plain")];
    let answer = browser.fill(&Program::new().path(), "/oauth/authorize", &fields).await.expect(303);
    assert_eq!(told(&answer)["error"], "invalid_request");
}

#[tokio::test]
async fn a_code_is_good_for_one_program_for_a_minute() {
    let world = world(On::Sqlite).await;
    let mut browser = Browser::new(&world);
    browser.sign_in("admin", &password(&world)).await.expect(303);
    let program = Program::new();
    for (name, value) in [
        ("code_verifier", "w".repeat(64)),
        ("redirect_uri", "http://127.0.0.1:40124/callback".to_owned()),
        ("client_id", "somebody".to_owned()),
    ] {
        let code = program.authorize(&mut browser).await["code"].clone();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("client_id", "paddock-cli"),
            ("redirect_uri", REDIRECT),
            ("code", code.as_str()),
            ("code_verifier", program.verifier.as_str()),
        ];
        fields.retain(|(known, _)| *known != name);
        fields.push((name, &value));
        let refused = token(&world, &fields).await.expect(400);
        let expected = if name == "client_id" { "invalid_client" } else { "invalid_grant" };
        assert_eq!(error(&refused), expected, "{name}");
        if name != "client_id" {
            // Nobody gets a second try.
            program.redeem(&world, &code).await.expect(400);
        }
    }
    let code = program.authorize(&mut browser).await["code"].clone();
    world.clock.advance(Duration::from_secs(60));
    program.redeem(&world, &code).await.expect(400);
    for (fields, expected) in [
        (&[("client_id", "paddock-cli")][..], "invalid_request"),
        (&[("client_id", "paddock-cli"), ("grant_type", "password")], "unsupported_grant_type"),
        (&[("client_id", "paddock-cli"), ("grant_type", "refresh_token")], "invalid_request"),
        (&[("grant_type", "refresh_token")], "invalid_client"),
    ] {
        assert_eq!(error(&token(&world, fields).await.expect(400)), expected, "{fields:?}");
    }
    // An age of the sign-in that the program does not accept leads to another one.
    let path = Program::new().with("max_age", "600").path();
    browser.get(&path).await.expect(200);
    world.clock.advance(Duration::from_secs(601));
    let again = browser.get(&path).await.expect(303);
    assert!(again.header("location").ends_with("&again=1"), "{again:?}");
    assert!(browser.get(again.header("location")).await.expect(200).text.contains("value=\"admin\""));
}

#[tokio::test]
async fn a_refresh_token_that_comes_twice_ends_its_family() {
    for on in BOTH {
        let world = world(on).await;
        let mut browser = Browser::new(&world);
        browser.sign_in("admin", &password(&world)).await.expect(303);
        let (first, other) = (tokens(&world, &mut browser).await, tokens(&world, &mut browser).await);
        let second = refresh(&world, &text(&first, "refresh_token")).await.expect(200).json();
        assert_ne!(second["refresh_token"], first["refresh_token"]);
        let third = refresh(&world, &text(&second, "refresh_token")).await.expect(200).json();
        assert_eq!(
            error(&refresh(&world, &text(&first, "refresh_token")).await.expect(400)),
            "invalid_grant"
        );
        assert_eq!(
            error(&refresh(&world, &text(&third, "refresh_token")).await.expect(400)),
            "invalid_grant"
        );
        let mut other = refresh(&world, &text(&other, "refresh_token")).await.expect(200).json();
        assert_eq!(actions(&world).await.iter().filter(|action| *action == "tokens.reuse").count(), 1);

        // Two at once are no better than two in a row: one of them wins, and then nobody has it any more.
        let token = text(&other, "refresh_token");
        let (one, two) = tokio::join!(refresh(&world, &token), refresh(&world, &token));
        let mut statuses = [one.status.as_u16(), two.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400]);

        other = tokens(&world, &mut browser).await;
        world.clock.advance(Duration::from_secs(30 * 24 * 3600));
        refresh(&world, &text(&other, "refresh_token")).await.expect(400);
        browser.sign_in("admin", &password(&world)).await.expect(303);
        let last = text(&tokens(&world, &mut browser).await, "refresh_token");
        let revoke = [("token", last.as_str()), ("client_id", "paddock-cli")];
        for _ in 0..2 {
            world.send(world.anonymous("POST", "/oauth/revoke").form_fields(&revoke)).await.expect(200);
        }
        refresh(&world, &last).await.expect(400);
    }
}

async fn begin(world: &World) -> Value {
    let request = world.anonymous("POST", "/oauth/device_authorization");
    world.send(request.form_fields(&[("client_id", "paddock-cli")])).await.expect(200).json()
}

async fn poll(world: &World, begun: &Value) -> Answer {
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", "paddock-cli"),
        ("device_code", begun["device_code"].as_str().expect("a code")),
    ];
    token(world, &fields).await
}

#[tokio::test]
async fn a_machine_without_a_browser_waits_for_a_person() {
    for on in BOTH {
        let world = world(on).await;
        let seconds = |seconds| world.clock.advance(Duration::from_secs(seconds));
        let begun = begin(&world).await;
        let code = text(&begun, "user_code");
        assert_eq!(begun["verification_uri"], world.url("/device"));
        assert_eq!(error(&poll(&world, &begun).await.expect(400)), "authorization_pending");
        seconds(4);
        assert_eq!(error(&poll(&world, &begun).await.expect(400)), "slow_down");
        // Who asks too often is not even written down.
        seconds(1);
        assert_eq!(error(&poll(&world, &begun).await.expect(400)), "authorization_pending");

        let mut browser = Browser::new(&world);
        let path = format!("/device?user_code={code}");
        let to_sign_in = browser.get(&path).await.expect(303).header("location").to_owned();
        let fields = [("login", "admin"), ("password", &password(&world))];
        assert_eq!(browser.fill(&to_sign_in, "/sign-in", &fields).await.expect(303).header("location"), path);
        browser.get("/device?user_code=BBBB-BBBB").await.expect(404);
        let lower = format!("/device?user_code={}", code.to_lowercase().replace('-', "+"));
        let page = browser.get(&lower).await.expect(200);
        assert!(page.text.contains("The paddock command line") && page.text.contains("127.0.0.1"));
        browser.fill(&path, "/device", &[("decision", "allow")]).await.expect(200);
        // Decided is decided.
        browser.get(&path).await.expect(404);
        let tokens = poll(&world, &begun).await.expect(200).json();
        refresh(&world, &text(&tokens, "refresh_token")).await.expect(200);
        assert_eq!(error(&poll(&world, &begun).await.expect(400)), "invalid_grant", "used twice");

        let denied = begin(&world).await;
        let path = format!("/device?user_code={}", text(&denied, "user_code"));
        browser.fill(&path, "/device", &[("decision", "deny")]).await.expect(200);
        assert_eq!(error(&poll(&world, &denied).await.expect(400)), "access_denied");

        let late = begin(&world).await;
        seconds(900);
        browser.get(&format!("/device?user_code={}", text(&late, "user_code"))).await.expect(404);
        assert_eq!(error(&poll(&world, &late).await.expect(400)), "expired_token");
    }
    let limited = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "5"], LOOPS).await;
    let mut browser = Browser::new(&limited);
    browser.sign_in("admin", &password(&limited)).await.expect(303);
    for _ in 0..5 {
        browser.get("/device?user_code=BBBB-BBBB").await.expect(404);
    }
    browser.get("/device?user_code=BBBB-BBBB").await.expect(429);
}

#[tokio::test]
async fn keys_are_published_and_replaced_before_they_are_old() {
    for on in BOTH {
        let world = world(on).await;
        let keys = async || {
            let set = world.send(world.anonymous("GET", "/.well-known/jwks.json")).await.expect(200).json();
            let keys = set["keys"].as_array().expect("keys").iter().map(|key| text(key, "kid"));
            keys.collect::<Vec<_>>()
        };
        let rotate =
            async || (reconcile::signing_keys::LOOP.run)(&world.server.engine).await.expect("a run").changed;
        let first = keys().await;
        assert_eq!(first.len(), 1);
        world.clock.advance(Duration::from_secs(30 * 24 * 3600));
        let mut browser = Browser::new(&world);
        browser.sign_in("admin", &password(&world)).await.expect(303);
        let before = text(&tokens(&world, &mut browser).await, "access_token");
        // The server's own loops may have been faster.
        rotate().await;
        let two = keys().await;
        assert_eq!((two.len(), &two[1]), (2, &first[0]));
        let after = text(&tokens(&world, &mut browser).await, "access_token");
        world.clock.advance(Duration::from_secs(600));
        for token in [before, after] {
            world.send(world.anonymous("GET", "/api/v1/whoami").bearer_auth(token)).await.expect(200);
        }
        world.clock.advance(Duration::from_secs(600));
        rotate().await;
        assert_eq!(keys().await, two[..1]);
        assert_eq!(rotate().await, 0);
        let metadata = world
            .send(world.anonymous("GET", "/.well-known/oauth-authorization-server"))
            .await
            .expect(200)
            .json();
        assert_eq!(metadata["issuer"], world.url(""));
        assert_eq!(metadata["code_challenge_methods_supported"], serde_json::json!(["S256"]));
    }
}

#[tokio::test]
async fn nothing_that_opens_anything_is_kept_in_the_database() {
    let world = world(On::Sqlite).await;
    let mut browser = Browser::new(&world);
    browser.sign_in("admin", &password(&world)).await.expect(303);
    let program = Program::new();
    let code = program.authorize(&mut browser).await["code"].clone();
    let tokens = program.redeem(&world, &code).await.expect(200).json();
    let begun = begin(&world).await;
    let secrets = [
        browser.session().expect("a session").clone(),
        password(&world),
        code,
        text(&tokens, "refresh_token"),
        text(&tokens, "access_token"),
        text(&begun, "device_code"),
        text(&begun, "user_code").replace('-', ""),
    ];
    for file in ["paddock.db", "paddock.db-wal"] {
        let bytes = std::fs::read(world.folder.path().join(file)).expect("the database");
        for secret in &secrets {
            assert!(
                !bytes.windows(secret.len()).any(|window| window == secret.as_bytes()),
                "{secret} in {file}"
            );
        }
    }
}
