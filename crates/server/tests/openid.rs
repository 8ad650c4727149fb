//! Single sign-on against a real OpenID server: npm `oidc-provider`, which is certified.

mod oidc;
mod world;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use oidc::Provider;
use paddock_drivers::clock::SystemClock;
use paddock_engine::reconcile::LOOPS;
use paddock_model::ports::{Clock, ManualClock};
use paddock_server::auth::issuers::{Issuer, Issuers};
use paddock_server::auth::relying_party::{self, Flow, Returned};
use paddock_server::config::issuers::Issuer as Settings;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use url::Url;
use world::{Answer, World};

const AUDIENCE: &str = "https://paddock.example";
const CALLBACK: &str = "http://127.0.0.1:9/sign-in/callback";
const WHOAMI: &str = "/api/v1/whoami";

/// A world on the machine's clock, by which the OpenID server lives, too.
async fn world(provider: &Provider) -> World {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let data = folder.path().display().to_string();
    let url = provider.url();
    let flags = [
        "--data",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--sso-issuer",
        &url,
        "--sso-audience",
        AUDIENCE,
        "--sso-client-id",
        "pages",
        "--limits-failed-authentications-per-minute",
        "1000000",
    ];
    let clock = SystemClock::default();
    let manual = Arc::new(ManualClock::at(clock.now()));
    World::on_clock(folder, &flags, LOOPS, manual, Arc::new(clock)).await
}

async fn whoami(world: &World, token: &str) -> Answer {
    world.send(world.anonymous("GET", WHOAMI).bearer_auth(token)).await
}

/// A browser as far as it is needed: keeps cookies, follows redirects, and signs in where it is asked to.
struct Browser {
    http: reqwest::Client,
    cookies: HashMap<String, String>,
}

impl Browser {
    fn new() -> Browser {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        Browser { http: http.expect("a client"), cookies: HashMap::new() }
    }

    async fn load(&mut self, url: &Url, form: Option<&str>) -> (Option<Url>, String) {
        let request = match form {
            Some(form) => {
                let kind = "application/x-www-form-urlencoded";
                self.http.post(url.clone()).header("content-type", kind).body(form.to_owned())
            }
            None => self.http.get(url.clone()),
        };
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = request.header("cookie", cookies.join("; ")).send().await.expect("an answer");
        for cookie in answer.headers().get_all("set-cookie") {
            let (pair, _) = cookie.to_str().expect("text").split_once(';').expect("attributes");
            let (name, value) = pair.split_once('=').expect("a value");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let next =
            answer.headers().get("location").map(|to| url.join(to.to_str().expect("text")).expect("a URL"));
        (next, answer.text().await.expect("a page"))
    }

    /// Goes where it is sent, signs in as that person, and comes back with what the callback gets.
    async fn sign_in(&mut self, start: &Url, login: &str) -> Url {
        let (mut next, mut page) = self.load(start, None).await;
        let mut at = start.clone();
        for _ in 0..12 {
            match next {
                Some(url) if url.path() == "/sign-in/callback" => return url,
                Some(url) => {
                    (next, page) = self.load(&url, None).await;
                    at = url;
                }
                None => {
                    let form = if page.contains("name=\"login\"") {
                        format!("prompt=login&login={login}&password=x")
                    } else {
                        assert!(page.contains("consent"), "{page}");
                        "prompt=consent".to_owned()
                    };
                    let (to, text) = self.load(&at.clone(), Some(&form)).await;
                    (next, page) = (to, text);
                }
            }
        }
        panic!("the sign-in does not end: {page}");
    }
}

/// The tokens that a client for the command line would get: code with PKCE, for our API.
async fn tokens(provider: &Provider, login: &str) -> Value {
    let verifier = "v".repeat(43);
    let mut url = Url::parse(&format!("{}/auth", provider.url())).expect("a URL");
    url.query_pairs_mut().extend_pairs([
        ("client_id", "public"),
        ("response_type", "code"),
        ("redirect_uri", CALLBACK),
        ("scope", "openid offline_access api"),
        ("prompt", "consent"),
        ("resource", AUDIENCE),
        ("code_challenge", &URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))),
        ("code_challenge_method", "S256"),
    ]);
    let back = Browser::new().sign_in(&url, login).await;
    let code = parameter(&back, "code").expect("a code");
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", &verifier),
    ];
    redeem(provider, &fields).await
}

async fn redeem(provider: &Provider, fields: &[(&str, &str)]) -> Value {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields).append_pair("client_id", "public").append_pair("resource", AUDIENCE);
    let request = Browser::new().http.post(format!("{}/token", provider.url()));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form.finish());
    request.send().await.expect("an answer").json().await.expect("JSON")
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn text<'a>(tokens: &'a Value, name: &str) -> &'a str {
    tokens[name].as_str().unwrap_or_else(|| panic!("no {name} in {tokens}"))
}

#[tokio::test]
async fn an_access_token_opens_the_api_and_no_other_token_does() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;

    let ada = tokens(&provider, "ada").await;
    let answer = whoami(&world, text(&ada, "access_token")).await.expect(200).json();
    assert_eq!((&answer["type"], &answer["credential"]["provider"]), (&"user".into(), &"sso".into()));
    for other in ["id_token", "refresh_token"] {
        assert_eq!(
            whoami(&world, text(&ada, other)).await.expect(401).code(),
            "invalid_credential",
            "{other}"
        );
    }

    // A refreshed token is the same person's.
    let fields = [("grant_type", "refresh_token"), ("refresh_token", text(&ada, "refresh_token"))];
    let refreshed = redeem(&provider, &fields).await;
    assert_ne!(refreshed["access_token"], ada["access_token"]);
    assert_ne!(refreshed["refresh_token"], ada["refresh_token"]);
    let again = whoami(&world, text(&refreshed, "access_token")).await.expect(200).json();
    assert_eq!(again["id"], answer["id"]);
    let eve = tokens(&provider, "eve").await;
    assert_ne!(whoami(&world, text(&eve, "access_token")).await.expect(200).json()["id"], answer["id"]);
}

#[tokio::test]
async fn who_came_by_a_token_without_a_name_gets_it_at_the_first_sign_in() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let ada = tokens(&provider, "ada").await;
    let before = whoami(&world, text(&ada, "access_token")).await.expect(200).json();
    assert_eq!((before["name"].as_str(), before["email"].as_str()), (Some("ada"), None));

    let start = Url::parse(&world.url("/sign-in")).expect("a URL");
    let mut browser = Browser::new();
    let back = browser.sign_in(&start, "ada").await;
    browser.load(&back, None).await;

    let after = whoami(&world, text(&ada, "access_token")).await.expect(200).json();
    assert_eq!(after["id"], before["id"]);
    assert_eq!(
        (after["name"].as_str(), after["email"].as_str()),
        (Some("ada Lovelace"), Some("ada@example.com"))
    );
    // What they call themselves from then on stays.
    let path = format!("/api/v1/users/{}", after["id"].as_str().expect("an id"));
    let own = serde_json::json!({ "name": "Countess" });
    world.call_as(text(&ada, "access_token"), "PUT", &path, Some(own)).await.expect(200);
    let mut browser = Browser::new();
    let back = browser.sign_in(&start, "ada").await;
    browser.load(&back, None).await;
    assert_eq!(whoami(&world, text(&ada, "access_token")).await.expect(200).json()["name"], "Countess");
}

#[tokio::test]
async fn keys_are_rotated_without_a_lost_request() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let by_first = tokens(&provider, "ada").await;
    whoami(&world, text(&by_first, "access_token")).await.expect(200);

    let provider = provider.restart(&["second", "first"]);
    let by_second = tokens(&provider, "ada").await;
    for tokens in [&by_second, &by_first] {
        whoami(&world, text(tokens, "access_token")).await.expect(200);
    }

    // While the server is away, what is known still holds; without the first key, the first token ends. That a key
    // is asked for at most twice a minute makes this wait.
    let mut provider = provider.restart(&["third", "second"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let by_third = tokens(&provider, "ada").await;
    whoami(&world, text(&by_third, "access_token")).await.expect(200);
    whoami(&world, text(&by_second, "access_token")).await.expect(200);
    assert_eq!(
        whoami(&world, text(&by_first, "access_token")).await.expect(401).code(),
        "invalid_credential"
    );
    provider.stop();
    whoami(&world, text(&by_third, "access_token")).await.expect(200);
}

fn relying_party(world: &World, provider: &Provider, client: &str, secret: Option<&Path>) -> Arc<Issuer> {
    let usual = Settings::sso("corporate", &provider.url(), AUDIENCE);
    let settings = Settings {
        client_id: Some(client.to_owned()),
        client_secret_file: secret.map(Path::to_owned),
        ..usual
    };
    let issuers = Issuers::new(&world.server.engine, &[settings]).expect("issuers");
    issuers.for_browsers().expect("one for browsers").clone()
}

fn returned(url: &Url) -> Returned {
    Returned {
        code: parameter(url, "code"),
        state: parameter(url, "state"),
        iss: parameter(url, "iss"),
        error: parameter(url, "error"),
    }
}

#[tokio::test]
async fn a_browser_signs_in_at_the_issuer() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let engine = &world.server.engine;
    let secret = provider.folder.path().join("client-secret");
    std::fs::write(&secret, "a secret/with signs+\n").expect("a file");

    let mut people = Vec::new();
    for (client, secret) in [("public", None), ("secret keeper", Some(secret.as_path()))] {
        let issuer = relying_party(&world, &provider, client, secret);
        let flow = Flow::new(&issuer, CALLBACK, client, engine.now());
        let url = relying_party::begin(&issuer, &flow, false).await.expect("a beginning");
        let back = Browser::new().sign_in(&url, "ada").await;
        let signed_in =
            relying_party::finish(engine, &issuer, &returned(&back), &flow).await.expect("a sign-in");
        assert_eq!(signed_in.user.name, "ada Lovelace");
        assert_eq!(signed_in.user.email.as_deref(), Some("ada@example.com"));
        assert!(engine.now().duration_since(signed_in.authenticated_at).as_secs() < 60);
        people.push(signed_in.user.id);

        // The code is worth nothing a second time.
        let again = relying_party::finish(engine, &issuer, &returned(&back), &flow).await;
        assert_eq!(again.expect_err("a used code").code, "sign_in_failed");
    }
    assert_eq!(people[0], people[1]);
}

#[tokio::test]
async fn a_sign_in_that_was_tampered_with_fails() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let engine = &world.server.engine;
    let issuer = relying_party(&world, &provider, "public", None);
    let flow = Flow::new(&issuer, CALLBACK, "one", engine.now());
    let url = relying_party::begin(&issuer, &flow, false).await.expect("a beginning");
    let back = returned(&Browser::new().sign_in(&url, "ada").await);
    assert_eq!(back.iss.as_deref(), Some(provider.url().as_str()));

    let other_flow = Flow::new(&issuer, CALLBACK, "other", engine.now());
    let other_url = relying_party::begin(&issuer, &other_flow, false).await.expect("a beginning");
    assert_ne!(url, other_url);
    for (name, returned, kept) in [
        ("another's state", Returned { state: Some("guess".to_owned()), ..back.clone() }, &flow),
        ("no state", Returned { state: None, ..back.clone() }, &flow),
        ("another issuer", Returned { iss: Some("https://evil.example".to_owned()), ..back.clone() }, &flow),
        ("no issuer", Returned { iss: None, ..back.clone() }, &flow),
        ("an error", Returned { error: Some("access_denied".to_owned()), ..back.clone() }, &flow),
        ("no code", Returned { code: None, ..back.clone() }, &flow),
        ("another browser", back.clone(), &other_flow),
    ] {
        let refused = relying_party::finish(engine, &issuer, &returned, kept).await.expect_err(name);
        assert_eq!(refused.code, "sign_in_failed", "{name}");
    }
    // A code that was stolen and slipped into another's flow fails by its PKCE verifier and nonce.
    let state = parameter(&other_url, "state");
    let stolen = Returned { state, ..back.clone() };
    let refused =
        relying_party::finish(engine, &issuer, &stolen, &other_flow).await.expect_err("a stolen code");
    assert_eq!(refused.code, "sign_in_failed");
}

#[tokio::test]
async fn our_page_sends_people_to_the_issuer_and_signs_them_in_when_they_come_back() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let page = |path: &str| Url::parse(&world.url(path)).expect("a URL");
    let mut browser = Browser::new();

    let back = browser.sign_in(&page("/sign-in?return_to=/account/password"), "ada").await;

    // What was meant for this browser is worth nothing in another.
    let (nowhere, refused) = Browser::new().load(&back, None).await;
    assert!(nowhere.is_none() && refused.contains("did not start a sign-in"), "{refused}");
    let (next, _) = browser.load(&back, None).await;
    assert_eq!(next.expect("where to go on").path(), "/account/password");
    let (_, home) = browser.load(&page("/"), None).await;
    assert!(home.contains("ada Lovelace") && home.contains("ada@example.com"), "{home}");
    // The same answer a second time: the cookie is gone.
    let (nowhere, _) = browser.load(&back, None).await;
    assert!(nowhere.is_none());

    // An account here is still good for who asks for the form.
    let (_, form) = Browser::new().load(&page("/sign-in?local=1"), None).await;
    assert!(form.contains("name=\"password\""), "{form}");
    // Nobody who comes for the first time has any right.
    let people = world.call("GET", "/api/v1/users", None).await.expect(200).json();
    let ada = people["items"].as_array().expect("items").iter().find(|user| user["name"] == "ada Lovelace");
    let ada = ada.expect("ada has an account");
    assert_eq!((ada["issuer"].as_str(), ada["login"].as_str()), (Some("sso"), None));
}

#[tokio::test]
async fn an_issuer_that_goes_away_before_the_browser_is_back_is_said_to_be_away() {
    let mut provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let start = Url::parse(&world.url("/sign-in?return_to=/device")).expect("a URL");
    let mut browser = Browser::new();
    let back = browser.sign_in(&start, "ada").await;
    provider.stop();

    let request = browser.http.get(back);
    let cookies: Vec<String> =
        browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let answer = request.header("cookie", cookies.join("; ")).send().await.expect("an answer");

    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let page = answer.text().await.expect("a page");
    assert!(page.contains("The identity provider does not answer"), "{page}");
    // Neither the way back nor what the log needs to know is lost or shown.
    assert!(page.contains("return_to=%2Fdevice") && page.contains("local=1"), "{page}");
    assert!(!page.contains(&provider.url()), "{page}");
}

/// With accounts here, and with accounts at the issuer.
#[tokio::test(flavor = "multi_thread")]
async fn two_people_share_a_tenant_by_curl_alone() {
    let provider = Provider::start(&["first"]);
    let world = world(&provider).await;
    let base = world.url("").replace("127.0.0.1", "localhost");
    let password = std::fs::read_to_string(world.folder.path().join("admin-password")).expect("the password");
    for way in ["here", "issuer"] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/curl/story.sh");
        let told = std::process::Command::new(script).args([&base, password.trim(), way]).output();
        let told = told.expect("bash");
        assert!(told.status.success(), "{way}: {}", String::from_utf8_lossy(&told.stderr));
    }
}
