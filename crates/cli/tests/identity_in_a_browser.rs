//! From the sign-in page to a right that changes at once: two people with a browser and the command line each, with accounts
//! here and with accounts at an OpenID server.

mod chromium;
#[path = "../../server/tests/oidc/mod.rs"]
mod oidc;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use chromium::{Chromium, server};
use oidc::Provider;
use paddock_server::wiring::Server;
use serde_json::Value;

const DONE: i32 = 0;
const NOT_FOUND: i32 = 5;
const NOT_ALLOWED: i32 = 12;

/// Somebody with a browser and a home folder of their own.
struct Person {
    chromium: Chromium,
    base: String,
    // Dropped after the browser that uses it.
    home: tempfile::TempDir,
}

impl Person {
    async fn at(base: &str) -> Person {
        let home = tempfile::tempdir().expect("a home");
        let chromium = Chromium::start(&home.path().join("chromium")).await;
        Person { chromium, base: base.to_owned(), home }
    }

    /// Somebody whom the issuer knows, and who has come here from there.
    async fn from_issuer(base: &str, name: &str) -> Person {
        let person = Person::at(base).await;
        person.chromium.open(base).await;
        person.sign_in_at_issuer(name).await;
        person.is_home().await;
        person
    }

    fn paddock(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
        command.env_clear().env("PADDOCK_URL", &self.base).env("XDG_CONFIG_HOME", self.home.path());
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// What the command line prints and says beside it; it must end like this.
    fn run(&self, arguments: &[&str], exit: i32) -> (String, String) {
        let output = self.paddock(arguments).output().expect("paddock starts");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {stdout}{stderr}");
        (stdout.trim().to_owned(), stderr)
    }

    /// Lets the command line act for who is signed in at the browser.
    async fn let_the_command_line_in(&self) {
        let mut command = self.paddock(&["auth", "login", "--no-browser"]);
        let mut login = command.stderr(Stdio::piped()).spawn().expect("paddock starts");
        let mut lines = BufReader::new(login.stderr.take().expect("its errors")).lines();
        let page = lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains("http://"));
        self.chromium.open(page.expect("an address").trim()).await;
        self.chromium.shows("h1", "Let a program act for you").await;
        self.chromium.click("button[value='allow']").await;
        self.chromium.shows("p", "The command line has its answer").await;
        lines.for_each(drop);
        assert!(login.wait().expect("an end").success());
    }

    /// On the pages of the OpenID server.
    async fn sign_in_at_issuer(&self, login: &str) {
        self.chromium.shows("h1", "Sign-in").await;
        self.chromium.fill("input[name='login']", login).await;
        self.chromium.fill("input[name='password']", "any will do").await;
        self.chromium.click("button.login-submit").await;
        self.allow_at_issuer().await;
    }

    /// It asks each time, because our client there can keep no secret.
    async fn allow_at_issuer(&self) {
        self.chromium.shows("h1", "Authorize").await;
        self.chromium.click("button.login-submit").await;
    }

    async fn is_home(&self) {
        self.chromium.shows("h1", "You are signed in").await;
        assert_eq!(self.chromium.url().await, format!("{}/", self.base));
    }

    /// As the start page says it.
    async fn account(&self) -> String {
        self.chromium.open(&self.base).await;
        self.is_home().await;
        self.chromium.text("#account").await
    }
}

/// What both ways to sign in end with. Ada administers the installation, Bob has come by the tenant's invitation.
async fn rights_follow_the_grants(ada: &Person, bob: &Person, bobs_account: &str) {
    let question = ["permission", "check", "can_create_backup", "tenant:acme"];
    bob.run(&question, NOT_ALLOWED);
    bob.chromium.open(&bob.base).await;
    bob.chromium.shows("main", "acme").await;

    ada.run(&["group", "create", "qa", "--tenant", "acme"], DONE);
    ada.run(&["group", "member", "add", "qa", bobs_account, "--tenant", "acme"], DONE);
    bob.run(&question, NOT_ALLOWED);
    ada.run(&["grant", "create", "qa", "operator", "tenant:acme", "--tenant", "acme"], DONE);
    bob.run(&question, DONE);

    ada.run(&["grant", "delete", "qa", "operator@tenant:acme", "--tenant", "acme", "--yes"], DONE);
    bob.run(&question, NOT_ALLOWED);
    bob.run(&["tenant", "get", "acme"], DONE);
    ada.run(&["member", "remove", bobs_account, "--tenant", "acme", "--yes"], DONE);
    bob.run(&["tenant", "get", "acme"], NOT_FOUND);
    bob.chromium.open(&bob.base).await;
    bob.chromium.shows("main", "You belong to no tenant").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_with_accounts_here_share_a_tenant() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server(folder.path(), &[]).await;
    let password = std::fs::read_to_string(folder.path().join("admin-password")).expect("the password");
    let base = format!("http://{}", server.address);
    let ada = Person::at(&base).await;
    ada.chromium.open(&base).await;
    ada.chromium.fill("#login", "admin").await;
    ada.chromium.fill("#password", password.trim()).await;
    ada.chromium.click("button").await;
    ada.is_home().await;
    ada.let_the_command_line_in().await;
    ada.run(&["tenant", "create", "acme"], DONE);
    let (account, said) =
        ada.run(&["member", "add", "--tenant", "acme", "--login", "bob", "--role", "member"], DONE);
    let link = said.lines().map(str::trim).find(|line| line.starts_with("http")).expect("a link");

    let bob = Person::at(&base).await;
    bob.chromium.open(link).await;
    bob.chromium.shows("h1", "Your invitation").await;
    for field in ["#password", "#repeated"] {
        bob.chromium.fill(field, "correct horse battery").await;
    }
    bob.chromium.click("button").await;
    bob.is_home().await;
    bob.let_the_command_line_in().await;

    assert_eq!(bob.account().await, account);
    rights_follow_the_grants(&ada, &bob, &account).await;
    for person in [ada, bob] {
        person.chromium.end().await;
    }
    server.stop().await;
}

/// A server whose people sign in at the provider, by the address under which they know it: for a browser another site than the provider's.
async fn server_with_issuer(folder: &Path, provider: &Provider) -> (Server, String) {
    let issuer = format!(
        "[[issuers]]\nid = \"corporate\"\nurl = {:?}\naudience = \"https://paddock.example\"\nclient_id = \"pages\"\nadmins = [\"ada\"]\n",
        provider.url()
    );
    let file = folder.join("paddock.toml");
    std::fs::write(&file, issuer).expect("written");
    let server = server(&folder.join("data"), &["--config", file.to_str().expect("text")]).await;
    let base = format!("http://localhost:{}", server.address.port());
    (server, base)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_with_accounts_at_an_openid_server_share_a_tenant() {
    let (folder, provider) = (tempfile::tempdir().expect("a folder"), Provider::start(&["first"]));
    let (server, base) = server_with_issuer(folder.path(), &provider).await;
    let ada = Person::from_issuer(&base, "ada").await;
    ada.chromium.shows("main", "ada Lovelace").await;
    ada.chromium.photograph("openid-home.png").await;
    ada.let_the_command_line_in().await;
    ada.run(&["tenant", "create", "acme"], DONE);

    // Nobody knows Bob before he has signed in.
    let bob = Person::from_issuer(&base, "bob").await;
    bob.chromium.shows("main", "You belong to no tenant").await;
    bob.chromium.photograph("openid-without-a-tenant.png").await;
    bob.let_the_command_line_in().await;
    bob.run(&["tenant", "get", "acme"], NOT_FOUND);
    let account = bob.account().await;
    ada.run(&["member", "add", "--tenant", "acme", "--user", &account, "--role", "member"], DONE);

    rights_follow_the_grants(&ada, &bob, &account).await;
    let (me, _) = bob.run(&["whoami", "-o", "json"], DONE);
    let me: Value = serde_json::from_str(&me).expect("JSON");
    assert_eq!((me["id"].as_str(), me["email"].as_str()), (Some(account.as_str()), Some("bob@example.com")));
    for person in [ada, bob] {
        person.chromium.end().await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_signs_out_stays_signed_out_though_the_issuer_knows_them() {
    let (folder, provider) = (tempfile::tempdir().expect("a folder"), Provider::start(&["first"]));
    let (server, base) = server_with_issuer(folder.path(), &provider).await;
    let ada = Person::from_issuer(&base, "ada").await;

    ada.chromium.click("form[action='/sign-out'] button").await;
    ada.chromium.shows("h1", "You are signed out").await;
    ada.chromium.photograph("openid-signed-out.png").await;

    // The issuer still knows her; someone else can sign in all the same.
    ada.chromium.click("a[href='/sign-in']").await;
    ada.allow_at_issuer().await;
    ada.is_home().await;
    ada.chromium.click("form[action='/sign-out'] button").await;
    ada.chromium.shows("h1", "You are signed out").await;
    ada.chromium.click("a[href='/sign-in?again=1']").await;
    ada.sign_in_at_issuer("carol").await;
    ada.is_home().await;
    ada.chromium.shows("main", "carol Lovelace").await;

    // Signed out there, too: nobody comes back without a password.
    ada.chromium.click("form[action='/sign-out'] button").await;
    ada.chromium.click(&format!("a[href^='{}']", provider.url())).await;
    ada.chromium.click("button[value='yes']").await;
    ada.chromium.shows("h1", "Sign-out Success").await;
    ada.chromium.open(&base).await;
    ada.chromium.shows("h1", "Sign-in").await;
    ada.chromium.end().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_at_the_issuer_that_goes_wrong_says_what_to_do() {
    let (folder, mut provider) = (tempfile::tempdir().expect("a folder"), Provider::start(&["first"]));
    let (server, base) = server_with_issuer(folder.path(), &provider).await;
    let bob = Person::at(&base).await;
    let page = &bob.chromium;

    // Declined at the provider.
    page.open(&base).await;
    page.shows("h1", "Sign-in").await;
    page.click(".login-help a").await;
    page.shows("#error", "declined").await;
    page.photograph("openid-declined.png").await;
    // Begun anew where he was; what is slipped in meanwhile fits nothing.
    page.click("a[href^='/sign-in']").await;
    page.shows("h1", "Sign-in").await;
    let forged = format!("{base}/sign-in/callback?code=stolen&state=guessed&iss={}", provider.url());
    page.open(&forged).await;
    page.shows("#error", "did not succeed").await;
    page.open(&forged).await;
    page.shows("#error", "did not start a sign-in").await;
    page.click("a[href^='/sign-in']").await;
    page.visited().await;
    bob.sign_in_at_issuer("bob").await;
    bob.is_home().await;

    // The way back a second time, from the browser's history.
    let back = page.visited().await.into_iter().find(|url| url.contains("/sign-in/callback?code="));
    page.open(&back.expect("he came back")).await;
    page.shows("#error", "did not start a sign-in").await;
    let account = bob.account().await;

    // Not allowed any more: the issuer still lets him in, this server does not.
    let admin = paddock_engine::users::first_admin(&server.engine).await.expect("the first admin");
    let token = paddock_server::auth::access_token::mint(&server.engine, admin.id, server.engine.now()).await;
    let mut close = bob.paddock(&["user", "update", &account, "--disable", "--yes"]);
    assert!(close.env("PADDOCK_TOKEN", token.expect("a token")).output().expect("paddock").status.success());
    page.open(&base).await;
    bob.allow_at_issuer().await;
    page.shows("#error", "Your account here is closed").await;
    page.photograph("openid-closed.png").await;
    page.click("a[href*='again=1']").await;
    bob.sign_in_at_issuer("carol").await;
    bob.is_home().await;
    server.stop().await;

    // Another server, which starts while the provider is away.
    provider.stop();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, base) = server_with_issuer(folder.path(), &provider).await;
    page.open(&base).await;
    page.shows("h1", "The identity provider does not answer").await;
    page.photograph("openid-away.png").await;
    page.click("a[href*='local=1']").await;
    page.shows("h1", "Sign in").await;
    let password = std::fs::read_to_string(folder.path().join("data/admin-password")).expect("the password");
    page.fill("#login", "admin").await;
    page.fill("#password", password.trim()).await;
    page.click("button").await;
    page.shows("h1", "You are signed in").await;
    bob.chromium.end().await;
    server.stop().await;
}
