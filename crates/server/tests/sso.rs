//! Tokens of other issuers: who is let in by them, who is not, and what happens while an issuer is away.

mod browser;
mod issuer;
mod world;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use browser::Browser;
use issuer::{AUDIENCE, Key, TestIssuer, section};
use paddock_engine::reconcile::LOOPS;
use ring::hmac;
use serde_json::{Value, json};
use world::{Answer, BOTH, On, World};

const WHOAMI: &str = "/api/v1/whoami";

/// A world that accepts tokens of these issuers; each is a section of the file.
async fn world_with(on: On, sections: &[String]) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("paddockd.toml");
    std::fs::write(&file, sections.concat()).expect("a file");
    let file = file.display().to_string();
    let flags = ["--config", &file, "--limits-failed-authentications-per-minute", "1000000"];
    World::with(on, &flags, LOOPS).await
}

fn claims(world: &World, issuer: &TestIssuer, subject: &str) -> Value {
    issuer.claims(world.server.engine.now().as_second(), subject)
}

async fn whoami(world: &World, token: &str) -> Answer {
    world.send(world.anonymous("GET", WHOAMI).bearer_auth(token)).await
}

/// What must be the same for every bad credential.
fn words(answer: &Answer) -> Value {
    let mut body = answer.json();
    body.as_object_mut().expect("a problem document").remove("requestId");
    body
}

#[tokio::test]
async fn a_person_is_known_from_the_first_token_on() {
    for on in BOTH {
        let keys = [Key::rsa("r"), Key::p256("p"), Key::ed25519("e")];
        let issuer = TestIssuer::start(&keys.each_ref()).await;
        let world = world_with(on, &[section("corporate", &issuer.url, "admins = [\"root\"]")]).await;

        let mut ada = claims(&world, &issuer, "ada");
        ada["name"] = json!("Ada\u{7} Lovelace");
        ada["email"] = json!("ada@example.com");
        let mut ids = Vec::new();
        for key in &keys {
            let answer = whoami(&world, &key.token(&ada)).await.expect(200).json();
            assert_eq!(
                (answer["type"].as_str(), answer["name"].as_str()),
                (Some("user"), Some("Ada Lovelace"))
            );
            assert_eq!(answer["email"], Value::Null, "an e-mail that nobody has verified");
            assert_eq!(
                (&answer["credential"]["type"], &answer["credential"]["provider"]),
                (&json!("sso"), &json!("corporate"))
            );
            assert_eq!(answer["credential"]["scopes"], json!(["openid", "api"]));
            ids.push(answer["id"].clone());
        }
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");

        // The same name and e-mail make nobody the same person.
        let mut other = ada.clone();
        (other["sub"], other["email_verified"]) = (json!("ada2"), json!(true));
        let answer = whoami(&world, &keys[0].token(&other)).await.expect(200).json();
        assert_ne!(answer["id"], ids[0]);
        assert_eq!(answer["email"], "ada@example.com");

        // Nobody starts with a right, but who is named as an admin.
        for (subject, status) in [("ada", 403), ("root", 201)] {
            let token = keys[0].token(&claims(&world, &issuer, subject));
            let request = world.anonymous("POST", "/api/v1/tenants").bearer_auth(token);
            world.send(request.json(&json!({ "name": "acme" }))).await.expect(status);
        }
    }
}

#[tokio::test]
async fn a_token_ends_when_it_says_so() {
    let key = Key::ed25519("e");
    let issuer = TestIssuer::start(&[&key]).await;
    let world = world_with(On::Sqlite, &[section("corporate", &issuer.url, "")]).await;
    let token = key.token(&claims(&world, &issuer, "ada"));
    whoami(&world, &token).await.expect(200);

    world.clock.advance(Duration::from_secs(659));
    whoami(&world, &token).await.expect(200);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(whoami(&world, &token).await.expect(401).code(), "credential_expired");
}

#[tokio::test]
async fn every_forged_token_gets_the_same_answer() {
    let (rsa, p256, ed25519) = (Key::rsa("r"), Key::p256("p"), Key::ed25519("e"));
    let issuer = TestIssuer::start(&[&rsa, &p256, &ed25519]).await;
    // Of another issuer, with a key of the same id.
    let twin = Key::rsa("r");
    let other = TestIssuer::start(&[&twin]).await;
    let sections = [section("corporate", &issuer.url, ""), section("other", &other.url, "")];
    let world = world_with(On::Sqlite, &sections).await;
    let good = claims(&world, &issuer, "ada");
    whoami(&world, &rsa.token(&good)).await.expect(200);
    whoami(&world, &twin.token(&claims(&world, &other, "ada"))).await.expect(200);

    // Whoever follows a token's own words comes here.
    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let trap_url = format!("http://{}/keys", trap.local_addr().expect("an address"));

    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        claims
    };
    let now = world.server.engine.now().as_second();
    let mut forged: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, token: String| forged.push((name.to_owned(), token));

    for alg in ["none", "None", "NONE", "nOnE", "HS256", "RS1", ""] {
        let header = json!({ "alg": alg, "typ": "at+jwt", "kid": "r" });
        let signed = rsa.sign(&header, &good.to_string());
        add(&format!("alg {alg}"), signed.clone());
        let (unsigned, _) = signed.rsplit_once('.').expect("segments");
        add(&format!("alg {alg} unsigned"), format!("{unsigned}."));
        add(&format!("alg {alg} in two segments"), unsigned.to_owned());
    }
    for (name, alg) in [("array", json!(["RS256"])), ("number", json!(1)), ("null", json!(null))] {
        add(
            &format!("alg {name}"),
            rsa.sign(&json!({ "alg": alg, "typ": "at+jwt", "kid": "r" }), &good.to_string()),
        );
    }
    add("no alg", rsa.sign(&json!({ "typ": "at+jwt", "kid": "r" }), &good.to_string()));

    // The public key as a shared secret.
    let modulus = URL_SAFE_NO_PAD.decode(rsa.public()["n"].as_str().expect("a modulus")).expect("base64");
    let der = subject_public_key_info(&modulus);
    let lines: Vec<String> = STANDARD
        .encode(&der)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", lines.join("\n"));
    let jwk = rsa.public().to_string();
    for (alg, digest) in
        [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
    {
        for (form, secret) in [
            ("PEM", pem.clone().into_bytes()),
            ("PEM and a newline", format!("{pem}\n").into_bytes()),
            ("DER", der.clone()),
            ("JWK", jwk.clone().into_bytes()),
            ("nothing", Vec::new()),
        ] {
            let header = json!({ "alg": alg, "typ": "at+jwt", "kid": "r" });
            let signed = format!("{}.{}", encode(&header.to_string()), encode(&good.to_string()));
            let tag = hmac::sign(&hmac::Key::new(digest, &secret), signed.as_bytes());
            add(
                &format!("{alg} with the public key as {form}"),
                format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)),
            );
        }
    }

    // A key that comes with the token.
    let own = Key::rsa("own");
    for (name, member, value) in [
        ("jwk", "jwk", own.public()),
        ("jku", "jku", json!(trap_url)),
        ("x5u", "x5u", json!(trap_url)),
        ("x5c", "x5c", json!([STANDARD.encode(&der)])),
        ("crit", "crit", json!(["exp"])),
        ("unknown crit", "crit", json!(["urn:example"])),
        ("b64", "b64", json!(false)),
        ("zip", "zip", json!("DEF")),
        ("nested", "cty", json!("JWT")),
    ] {
        for (whose, key) in [("own", &own), ("right", &rsa)] {
            let mut header = json!({ "alg": "RS256", "typ": "at+jwt", "kid": key.kid });
            header[member] = value.clone();
            add(&format!("{name} with the {whose} key"), key.sign(&header, &good.to_string()));
        }
    }
    for kid in [
        "../../../../dev/null",
        "/etc/passwd",
        "r' OR '1'='1",
        "r\u{0}",
        "",
        "p",
        "e",
        &"k".repeat(4000),
        &trap_url,
        "R",
        "r ",
    ] {
        add(
            &format!("kid {kid:.20}"),
            rsa.sign(&json!({ "alg": "RS256", "typ": "at+jwt", "kid": kid }), &good.to_string()),
        );
    }
    for kid in [json!(null), json!(7), json!(["r"])] {
        add(
            &format!("kid {kid}"),
            rsa.sign(&json!({ "alg": "RS256", "typ": "at+jwt", "kid": kid }), &good.to_string()),
        );
    }
    add("no kid", rsa.sign(&json!({ "alg": "RS256", "typ": "at+jwt" }), &good.to_string()));
    for typ in ["JWT", "dpop+jwt", "logout+jwt", "secevent+jwt", "rt+jwt", ""] {
        add(
            &format!("typ {typ}"),
            rsa.sign(&json!({ "alg": "RS256", "typ": typ, "kid": "r" }), &good.to_string()),
        );
    }
    add("no typ", rsa.sign(&json!({ "alg": "RS256", "kid": "r" }), &good.to_string()));

    // Claims.
    for claim in ["iss", "aud", "sub", "exp"] {
        let mut without = good.clone();
        without.as_object_mut().expect("claims").remove(claim);
        add(&format!("without {claim}"), rsa.token(&without));
    }
    for (claim, value) in [
        ("exp", json!((now + 600).to_string())),
        ("exp", json!(now as f64 + 0.5)),
        ("exp", json!(-1)),
        ("exp", json!(null)),
        ("exp", json!([now + 600])),
        ("exp", json!(true)),
        ("exp", json!(now + 100 * 365 * 86400)),
        ("exp", json!(u64::MAX)),
        ("nbf", json!(now + 61)),
        ("nbf", json!("0")),
        ("nbf", json!(null)),
        ("iat", json!(now + 61)),
        ("iat", json!("0")),
        ("iat", json!(-5)),
        ("aud", json!("https://other.example")),
        ("aud", json!({ AUDIENCE: 1 })),
        ("aud", json!([])),
        ("aud", json!("https://PADDOCK.example")),
        ("aud", json!("https://paddock.exampl")),
        ("aud", json!("https://paddock.example/")),
        ("aud", json!([AUDIENCE, "https://other.example"])),
        ("aud", json!([AUDIENCE, 7])),
        ("aud", json!([[AUDIENCE]])),
        ("aud", json!(null)),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("sub", json!(null)),
        ("sub", json!("ä")),
        ("sub", json!("x".repeat(256))),
        ("iss", json!(format!("{}/", issuer.url))),
        ("iss", json!(issuer.url.to_uppercase())),
        ("iss", json!(issuer.url.replace("http", "https"))),
        ("iss", json!(issuer.url.replace("//", "//ada@"))),
        ("iss", json!([issuer.url])),
        ("iss", json!(null)),
        ("iss", json!(trap_url.trim_end_matches("/keys"))),
        ("iss", json!("urn:paddock")),
        ("iss", json!(other.url)),
        ("nonce", json!("n")),
        ("at_hash", json!("h")),
        ("events", json!({})),
        ("typ", json!("ID")),
        ("typ", json!("Refresh")),
        ("typ", json!("Logout")),
    ] {
        add(&format!("{claim} {value:.60}"), rsa.token(&with(claim, value)));
    }
    let text = good.to_string();
    let huge = text.replacen(&format!("\"exp\":{}", now + 600), "\"exp\":1e400", 1);
    assert_ne!(huge, text);
    add("exp 1e400", rsa.sign(&rsa.header(), &huge));
    add("sub twice", rsa.sign(&rsa.header(), &text.replacen('{', "{\"sub\":\"root\",", 1)));
    add("exp twice", rsa.sign(&rsa.header(), &text.replacen('{', &format!("{{\"exp\":{},", now + 1), 1)));
    add("deep twice", rsa.sign(&rsa.header(), &text.replacen('{', "{\"a\":{\"b\":1,\"b\":2},", 1)));
    add("BOM", rsa.sign(&rsa.header(), &format!("\u{feff}{text}")));
    add("no object", rsa.sign(&rsa.header(), "[]"));
    add("no JSON", rsa.sign(&rsa.header(), "hello"));
    add("deep", rsa.sign(&rsa.header(), &format!("{{\"a\":{}1{}}}", "[".repeat(500), "]".repeat(500))));
    add("oversized", rsa.token(&with("x", json!("x".repeat(9000)))));

    // Signatures.
    let token = rsa.token(&good);
    let (signed, signature) = token.rsplit_once('.').expect("segments");
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    flipped[100] ^= 1;
    add("one bit flipped", format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&flipped)));
    add("signature cut", format!("{signed}.{}", &signature[..signature.len() - 4]));
    add("signature zero", format!("{signed}.{}", URL_SAFE_NO_PAD.encode(vec![0; 256])));
    add("signature padded", format!("{token}="));
    add("signed by another", Key::rsa("r").token(&good));
    add("of another issuer with the same kid", twin.token(&good));
    add("as another issuer", rsa.token(&claims(&world, &other, "ada")));
    add("RS256 key used for PS256", rsa.sign(&json!({ "alg": "PS256", "typ": "at+jwt", "kid": "r" }), &text));
    add(
        "RSA signature called ES256",
        rsa.sign(&json!({ "alg": "ES256", "typ": "at+jwt", "kid": "r" }), &text),
    );
    let (head, body) = (encode(&p256.header().to_string()), encode(&text));
    let message = format!("{head}.{body}");
    let fixed = p256.signature(message.as_bytes());
    let scalar = |r: &[u8], s: &[u8]| format!("{message}.{}", URL_SAFE_NO_PAD.encode([r, s].concat()));
    let zero = [0; 32];
    add("r = 0", scalar(&zero, &fixed[32..]));
    add("s = 0", scalar(&fixed[..32], &zero));
    add("r = s = 0", scalar(&zero, &zero));
    add("ECDSA in DER", format!("{message}.{}", URL_SAFE_NO_PAD.encode(in_der(&fixed))));
    add("ECDSA empty", format!("{message}."));
    add("EC key called RS256", p256.sign(&json!({ "alg": "RS256", "typ": "at+jwt", "kid": "p" }), &text));
    add("EC key called ES384", p256.sign(&json!({ "alg": "ES384", "typ": "at+jwt", "kid": "p" }), &text));

    // Shapes.
    let (header, rest) = token.split_once('.').expect("segments");
    let trailing = format!("{}B", &header[..header.len() - 1]);
    for (name, text) in [
        ("five segments", format!("{token}.a.b")),
        ("two segments", signed.to_owned()),
        ("empty segments", "..".to_owned()),
        ("padding inside", format!("{header}=.{rest}")),
        ("trailing bits", format!("{trailing}.{rest}")),
        ("standard base64", format!("{header}+/.{rest}")),
        ("JSON serialisation", json!({ "payload": body, "signature": signature }).to_string()),
        ("refresh token", "bmV2ZXItYS1qd3QtcmVmcmVzaC10b2tlbg".to_owned()),
        ("garbage", "a.b.c".to_owned()),
    ] {
        add(name, text);
    }
    assert!(forged.len() > 150, "{}", forged.len());

    let expected = words(&whoami(&world, "garbage").await.expect(401));
    let fetches = issuer.fetches();
    for (name, token) in &forged {
        let answer = whoami(&world, token).await;
        assert_eq!(answer.status.as_u16(), 401, "{name}: {}", answer.text);
        assert_eq!(words(&answer), expected, "{name}");
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer realm=\"paddock\", error=\"invalid_token\"",
            "{name}"
        );
    }
    let twice =
        world.anonymous("GET", WHOAMI).bearer_auth(&token).header("authorization", format!("Bearer {token}"));
    assert_eq!(words(&world.send(twice).await.expect(401)), expected);

    assert!(issuer.fetches() <= fetches + 1, "unknown keys make one question at most");
    let led_away = tokio::time::timeout(Duration::from_millis(200), trap.accept()).await;
    assert!(led_away.is_err(), "a token has led the server to an address of its own");
    whoami(&world, &token).await.expect(200);
}

fn encode(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Tag, length, content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        short @ 0..=127 => vec![short as u8],
        long @ 128..=255 => vec![0x81, long as u8],
        long => vec![0x82, (long >> 8) as u8, long as u8],
    };
    [&[tag][..], &length, content].concat()
}

fn der_integer(bytes: &[u8]) -> Vec<u8> {
    let bytes: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    let sign: &[u8] = if bytes.first().is_some_and(|first| *first >= 0x80) { &[0] } else { &[] };
    der(2, &[sign, &bytes].concat())
}

fn in_der(fixed: &[u8]) -> Vec<u8> {
    der(0x30, &[der_integer(&fixed[..32]), der_integer(&fixed[32..])].concat())
}

fn subject_public_key_info(modulus: &[u8]) -> Vec<u8> {
    let key = der(0x30, &[der_integer(modulus), der_integer(&[1, 0, 1])].concat());
    let rsa =
        der(0x30, &[der(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]), der(5, &[])].concat());
    der(0x30, &[rsa, der(3, &[&[0], &key[..]].concat())].concat())
}

#[tokio::test]
async fn a_thousand_tokens_with_an_unknown_key_make_one_question() {
    let (key, unknown) = (Key::ed25519("e"), Key::ed25519("unknown"));
    let issuer = TestIssuer::start(&[&key]).await;
    let world = Arc::new(world_with(On::Sqlite, &[section("corporate", &issuer.url, "")]).await);
    whoami(&world, &key.token(&claims(&world, &issuer, "ada"))).await.expect(200);
    assert_eq!(issuer.fetches(), 1);
    let flood = |round: usize| {
        let (world, issuer, unknown) = (world.clone(), &issuer, &unknown);
        let tokens: Vec<String> = (0..1000)
            .map(|number| {
                let header = json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": format!("{round}-{number}") });
                unknown.sign(&header, &claims(&world, issuer, "ada").to_string())
            })
            .collect();
        async move {
            let sent = tokens.into_iter().map(|token| {
                let request = world.anonymous("GET", WHOAMI).bearer_auth(token);
                tokio::spawn(async move { request.send().await.expect("an answer").status().as_u16() })
            });
            for answer in sent.collect::<Vec<_>>() {
                assert_eq!(answer.await.expect("an answer"), 401);
            }
        }
    };

    flood(1).await;
    assert_eq!(issuer.fetches(), 2, "one question for all");
    world.clock.advance(Duration::from_secs(29));
    flood(2).await;
    assert_eq!(issuer.fetches(), 2, "none for half a minute");
    world.clock.advance(Duration::from_secs(1));
    flood(3).await;
    assert_eq!(issuer.fetches(), 3);
    whoami(&world, &key.token(&claims(&world, &issuer, "ada"))).await.expect(200);
}

#[tokio::test]
async fn an_issuer_that_is_down_is_not_the_tokens_fault() {
    let (key, late) = (Key::ed25519("e"), Key::ed25519("late"));
    let (up, down) = (TestIssuer::start(&[&key]).await, TestIssuer::start(&[&late]).await);
    down.answer_instead(Some((500, "")));
    // Nobody listens there.
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = format!("http://{}", nobody.local_addr().expect("an address"));
    drop(nobody);
    let sections = [section("up", &up.url, ""), section("down", &down.url, ""), section("gone", &gone, "")];
    let world = world_with(On::Sqlite, &sections).await;

    for url in [&down.url, &gone] {
        let mut claims = claims(&world, &down, "ada");
        claims["iss"] = json!(url);
        for _ in 0..3 {
            let answer = whoami(&world, &late.token(&claims)).await.expect(503);
            assert_eq!(answer.code(), "identity_provider_unavailable");
            assert_eq!(answer.header("retry-after"), "5");
        }
    }
    whoami(&world, &key.token(&claims(&world, &up, "ada"))).await.expect(200);
    let ready = world.send(world.anonymous("GET", "/-/readyz?verbose")).await.expect(200).text;
    assert!(ready.contains("[+] issuer up: 1 keys, read at "), "{ready}");
    assert!(ready.contains("[!] issuer down: its keys cannot be read: "), "{ready}");
    assert!(ready.contains("[!] issuer gone: discovery fails: "), "{ready}");

    down.answer_instead(None);
    world.clock.advance(Duration::from_secs(5));
    whoami(&world, &late.token(&claims(&world, &down, "ada"))).await.expect(200);
}

#[tokio::test]
async fn nonsense_leaves_the_old_keys_in_force_for_a_day() {
    let (key, other) = (Key::ed25519("e"), Key::ed25519("other"));
    let issuer = TestIssuer::start(&[&key]).await;
    let world = world_with(On::Sqlite, &[section("corporate", &issuer.url, "")]).await;
    let token = || key.token(&claims(&world, &issuer, "ada"));
    whoami(&world, &token()).await.expect(200);

    issuer.answer_instead(Some((200, "<html>Down for maintenance</html>")));
    for _ in 0..3 {
        fetched_again(&world, &issuer).await;
        whoami(&world, &token()).await.expect(200);
    }
    // Whether that key exists nobody can say now.
    whoami(&world, &other.token(&claims(&world, &issuer, "ada"))).await.expect(503);
    world.clock.advance(Duration::from_secs(24 * 3600));
    whoami(&world, &token()).await.expect(503);
    issuer.answer_instead(None);
    world.clock.advance(Duration::from_secs(60));
    whoami(&world, &token()).await.expect(200);
}

#[tokio::test]
async fn a_key_may_be_replaced_without_a_pause_and_ends_when_it_is_removed() {
    let (old, new) = (Key::ed25519("old"), Key::ed25519("new"));
    let issuer = TestIssuer::start(&[&old]).await;
    let world = world_with(On::Sqlite, &[section("corporate", &issuer.url, "")]).await;
    let by_old = old.token(&claims(&world, &issuer, "ada"));
    let by_new = new.token(&claims(&world, &issuer, "ada"));
    whoami(&world, &by_old).await.expect(200);

    issuer.publish(&[&new, &old]);
    whoami(&world, &by_new).await.expect(200);
    whoami(&world, &by_old).await.expect(200);

    issuer.publish(&[&new]);
    fetched_again(&world, &issuer).await;
    let mut status = 0;
    for _ in 0..100 {
        status = whoami(&world, &by_old).await.status.as_u16();
        if status == 401 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status, 401, "the removed key still works");
    whoami(&world, &by_new).await.expect(200);
}

/// Lets time pass until the issuer is asked again, which must be within the ten minutes that keys hold at most.
async fn fetched_again(world: &World, issuer: &TestIssuer) {
    let fetches = issuer.fetches();
    for _ in 0..20 {
        world.clock.advance(Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(150)).await;
        if issuer.fetches() > fetches {
            return;
        }
    }
    panic!("the issuer was not asked again");
}

fn account_claims(world: &World, issuer: &TestIssuer) -> Value {
    issuer.account_claims(world.server.engine.now().as_second())
}

#[tokio::test]
async fn a_service_account_is_known_by_its_cluster_and_name() {
    let key = Key::rsa("k8s");
    let cluster = TestIssuer::start(&[&key]).await;
    let world =
        world_with(On::Sqlite, &[section("cluster", &cluster.url, "kind = \"service_account\"")]).await;
    let good = account_claims(&world, &cluster);
    let now = world.server.engine.now().as_second();

    let answer = whoami(&world, &key.projected(&good)).await.expect(200).json();
    assert_eq!((&answer["type"], &answer["id"]), (&json!("service_account"), &json!("cluster/ci/runner")));
    assert_eq!(answer["credential"]["type"], "service_account");
    let request = world.anonymous("POST", "/api/v1/tenants").bearer_auth(key.projected(&good));
    world.send(request.json(&json!({ "name": "acme" }))).await.expect(403);

    let extended = |warn: i64| {
        let mut claims = good.clone();
        (claims["iat"], claims["nbf"], claims["exp"]) =
            (json!(now - 3000), json!(now - 3000), json!(now + 365 * 86400));
        claims["kubernetes.io"]["warnafter"] = json!(now + warn);
        claims
    };
    // A token that lives a year on paper ends when it is meant to.
    whoami(&world, &key.projected(&extended(607))).await.expect(200);
    assert_eq!(whoami(&world, &key.projected(&extended(-1))).await.expect(401).code(), "credential_expired");

    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        claims
    };
    for (name, claims) in [
        ("a year", with("exp", json!(now + 365 * 86400))),
        ("more than a day", with("exp", json!(now + 86400))),
        ("another audience", with("aud", json!(["https://kubernetes.default.svc"]))),
        ("several audiences", with("aud", json!([AUDIENCE, "https://kubernetes.default.svc"]))),
        ("no account", with("sub", json!("ada"))),
        ("another account", with("sub", json!("system:serviceaccount:ci:admin"))),
        ("a name with a slash", with("sub", json!("system:serviceaccount:ci/x:runner"))),
        ("no issue time", with("iat", json!(null))),
    ] {
        let answer = whoami(&world, &key.projected(&claims)).await.expect(401);
        assert_eq!(answer.code(), "invalid_credential", "{name}");
    }
}

/// No Kubernetes API server can be installed by package name, so a stand-in speaks the documented shape of TokenReview.
#[tokio::test]
async fn the_api_server_is_asked_about_a_service_account() {
    let key = Key::rsa("k8s");
    let cluster = TestIssuer::start(&[&key]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").expect("a file");
    let more = format!(
        "kind = \"service_account\"\nmode = \"token_review\"\napi_server = \"{}\"\ntoken_file = \"{}\"",
        cluster.url,
        file.display()
    );
    let world = world_with(On::Sqlite, &[section("cluster", &cluster.url, &more)]).await;
    let token = key.projected(&account_claims(&world, &cluster));
    let user = json!({ "username": "system:serviceaccount:ci:runner", "uid": "u-1" });
    cluster.say_of_tokens(json!({ "authenticated": true, "user": user, "audiences": [AUDIENCE] }));

    for _ in 0..3 {
        assert_eq!(whoami(&world, &token).await.expect(200).json()["id"], "cluster/ci/runner");
    }
    assert_eq!(cluster.reviews(), 1, "a word holds for ten seconds");
    let (credential, question) = cluster.last_question().expect("a question");
    assert_eq!(credential, "Bearer first");
    assert_eq!(question["spec"], json!({ "token": token, "audiences": [AUDIENCE] }));

    std::fs::write(&file, "second\n").expect("a file");
    for (status, answer) in [
        (json!({ "authenticated": false, "error": "the pod is gone" }), 401),
        (json!({ "authenticated": true, "user": user, "audiences": ["other"] }), 401),
        (json!({ "authenticated": true, "user": user }), 401),
        (json!({ "authenticated": true, "user": { "username": "root" }, "audiences": [AUDIENCE] }), 401),
    ] {
        world.clock.advance(Duration::from_secs(10));
        cluster.say_of_tokens(status.clone());
        whoami(&world, &token).await.expect(answer);
    }
    assert_eq!(cluster.last_question().expect("a question").0, "Bearer second");

    world.clock.advance(Duration::from_secs(5));
    for status in [401, 403, 500] {
        cluster.answer_instead(Some((status, "")));
        whoami(&world, &token).await.expect(503);
    }
    let reviews = cluster.reviews();
    let mut old = account_claims(&world, &cluster);
    old["aud"] = json!("other");
    whoami(&world, &key.projected(&old)).await.expect(401);
    assert_eq!(cluster.reviews(), reviews, "what cannot be good is not asked about");
}

#[tokio::test]
async fn the_api_server_is_asked_once_about_a_token_that_comes_often() {
    let key = Key::rsa("k8s");
    let cluster = TestIssuer::start(&[&key]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "own\n").expect("a file");
    let more = format!(
        "kind = \"service_account\"\nmode = \"token_review\"\napi_server = \"{}\"\ntoken_file = \"{}\"",
        cluster.url,
        file.display()
    );
    let world = Arc::new(world_with(On::Sqlite, &[section("cluster", &cluster.url, &more)]).await);
    let token = key.projected(&account_claims(&world, &cluster));
    let user = json!({ "username": "system:serviceaccount:ci:runner", "uid": "u-1" });
    let flood = async |status: u16| {
        let requests = (0..20).map(|_| {
            let (world, token) = (world.clone(), token.clone());
            tokio::spawn(async move { whoami(&world, &token).await })
        });
        for request in requests.collect::<Vec<_>>() {
            request.await.expect("a task").expect(status);
        }
    };
    cluster.say_of_tokens(json!({ "authenticated": false }));
    flood(401).await;
    flood(401).await;
    assert_eq!(cluster.reviews(), 1);
    cluster.say_of_tokens(json!({ "authenticated": true, "user": user, "audiences": [AUDIENCE] }));
    world.clock.advance(Duration::from_secs(4));
    flood(401).await;
    assert_eq!(cluster.reviews(), 1, "a refusal holds for five seconds");
    world.clock.advance(Duration::from_secs(1));
    flood(200).await;
    assert_eq!(cluster.reviews(), 2);
}

/// Goes to the issuer's page and comes back as this person.
async fn come_back(
    browser: &mut Browser,
    world: &World,
    issuer: &TestIssuer,
    key: &Key,
    subject: &str,
) -> Answer {
    let there = browser.get("/sign-in").await.expect(303);
    let there = url::Url::parse(there.header("location")).expect("an address");
    let asked: std::collections::HashMap<_, _> = there.query_pairs().into_owned().collect();
    let mut claims = claims(world, issuer, subject);
    (claims["aud"], claims["nonce"], claims["client_id"]) =
        (json!("pages"), json!(asked["nonce"]), json!("pages"));
    let token =
        key.sign(&json!({ "alg": key.algorithm(), "kid": key.kid, "typ": "JWT" }), &claims.to_string());
    issuer.give_tokens(json!({ "id_token": token, "token_type": "Bearer" }));
    browser.get(&format!("/sign-in/callback?code=c&state={}", asked["state"])).await
}

#[tokio::test]
async fn a_closed_account_gets_no_session() {
    for on in BOTH {
        let (key, other) = (Key::ed25519("e"), Key::ed25519("e"));
        let issuer = TestIssuer::start(&[&key]).await;
        let world = world_with(on, &[section("idp", &issuer.url, "client_id = \"pages\"")]).await;
        let mut browser = Browser::new(&world);
        come_back(&mut browser, &world, &issuer, &key, "grace").await.expect(303);
        assert!(browser.is_signed_in().await);
        let users = world.call("GET", "/api/v1/users", None).await.expect(200).json();
        let grace = users["items"].as_array().expect("users").iter().find(|user| user["login"].is_null());
        let id = grace.expect("grace")["id"].as_str().expect("an id").to_owned();
        let path = format!("/api/v1/users/{id}");
        world.call("PUT", &path, Some(json!({ "name": "Grace", "disabled": true }))).await.expect(200);
        assert!(!browser.is_signed_in().await);
        let mut browser = Browser::new(&world);
        let closed = come_back(&mut browser, &world, &issuer, &key, "grace").await.expect(403);
        assert!(browser.session().is_none() && closed.text.contains("is closed"), "{closed:?}");
        come_back(&mut browser, &world, &issuer, &other, "grace").await.expect(422);

        let events = world.call("GET", "/api/v1/audit?limit=100", None).await.expect(200).json();
        let refused = |code: &str| {
            let all = events["items"].as_array().expect("events").iter();
            let mut fit = all.filter(|event| event["code"] == code && event["action"] == "sessions.create");
            fit.next().unwrap_or_else(|| panic!("{code} in {events:?}"))["object"].clone()
        };
        assert_eq!(refused("account_closed"), format!("user_account:{id}"));
        assert_eq!(refused("sign_in_failed"), "issuer:idp");
    }
}

#[tokio::test]
async fn browsers_do_not_ask_an_issuer_that_is_down_again_and_again() {
    let key = Key::ed25519("e");
    let issuer = TestIssuer::start(&[&key]).await;
    issuer.hide(true);
    let world = world_with(On::Sqlite, &[section("idp", &issuer.url, "client_id = \"pages\"")]).await;
    let mut browser = Browser::new(&world);
    browser.get("/sign-in").await.expect(503);
    let before = issuer.discoveries();
    for _ in 0..10 {
        assert_eq!(browser.get("/sign-in").await.expect(503).header("retry-after"), "5");
    }
    // The server itself may ask meanwhile, for the keys.
    assert!(issuer.discoveries() <= before + 1, "{} {before}", issuer.discoveries());
    issuer.hide(false);
    world.clock.advance(Duration::from_secs(5));
    browser.get("/sign-in").await.expect(303);
}
