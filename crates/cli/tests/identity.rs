//! People at the command line: users, members, groups, grants, admins, keys, permissions and the audit.

mod world;

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use world::{
    EXIT_CONFLICT, EXIT_DONE, EXIT_FAILED, EXIT_FORBIDDEN, EXIT_NOT_ALLOWED, EXIT_NOT_FOUND, EXIT_SERVER,
    EXIT_TOO_MANY, EXIT_USAGE, Outcome, World, outcome,
};

const NOBODY: &str = "usr_00000000000000000000000000";

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("a list").iter().map(|item| item["id"].as_str().expect("an id")).collect()
}

/// The only link in what was said beside the data.
fn link(outcome: &Outcome) -> String {
    let links: Vec<&str> =
        outcome.stderr.lines().map(str::trim).filter(|line| line.starts_with("http")).collect();
    assert_eq!(links.len(), 1, "{outcome:?}");
    links[0].to_owned()
}

#[test]
fn whoami_names_the_user_and_the_credential() {
    let world = World::new();
    let ada = world.user("ada");

    let me = world.run_as(&world.token_of(&ada), &["whoami", "-o", "json"]).expect(EXIT_DONE).json();
    let table = world.run(&["whoami"]).expect(EXIT_DONE);
    let name = world.run_as(&world.token_of(&ada), &["whoami", "-o", "name"]).expect(EXIT_DONE);

    assert_eq!(me["id"], ada.as_str());
    assert_eq!(me["credential"]["type"], "access_token");
    assert_eq!(table.cells()[0][..2], ["NAME", "ID"]);
    assert_eq!(name.stdout, format!("{ada}\n"));
}

#[test]
fn a_new_user_gets_a_link_that_is_shown_once() {
    let world = World::new();

    let created = world.run(&["user", "create", "ada", "--name", "Ada Lovelace"]).expect(EXIT_DONE);
    let document = world.run(&["user", "create", "bob", "-o", "json"]).expect(EXIT_DONE);
    let again = world.run(&["user", "invite", "ada"]).expect(EXIT_DONE);

    let id = created.stdout.trim();
    let ada = world.run(&["user", "get", "ada", "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!((&ada["id"], &ada["name"]), (&json!(id), &json!("Ada Lovelace")));
    assert!(ada["invitation"].is_null(), "it is not told again");
    let start = format!("{}/invitation?token=", world.url());
    assert!(link(&created).starts_with(&start) && created.stderr.contains("shown once"), "{created:?}");
    assert_eq!(document.json()["invitation"]["url"], link(&document));
    // A script gets the link alone.
    let line = again.stdout.strip_suffix('\n').expect("one line");
    assert!(line.starts_with(&start) && !line.contains('\n') && line != link(&created), "{again:?}");
    assert!(again.stderr.contains("Shown once"), "{again:?}");
}

#[test]
fn a_user_is_found_changed_and_disabled() {
    let world = World::new();
    let ada = world.user("ada");
    let token = world.token_of(&ada);
    let update = |arguments: &[&str]| {
        world.run(&[&["user", "update", "ada", "-o", "json"], arguments].concat()).expect(EXIT_DONE).json()
    };

    let changed = update(&["--name", "Ada King", "--email", "ada@acme.example"]);
    assert_eq!((&changed["name"], &changed["email"]), (&json!("Ada King"), &json!("ada@acme.example")));
    assert_eq!(update(&["--no-email"])["email"], Value::Null);
    world.run(&["user", "update", "ada", "--disable"]).expect(EXIT_USAGE).says_only("--yes");
    world.run_as(&token, &["whoami"]).expect(EXIT_DONE);
    assert_eq!(update(&["--disable", "--yes"])["disabled"], true);
    assert_eq!(update(&["--name", "Ada"])["disabled"], true, "what is not named stays");
    assert_eq!(update(&["--enable"])["disabled"], false);
    let found = world.run(&["user", "list", "--login", "ada", "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!(ids(&found), [ada.as_str()]);
    assert_eq!(world.run(&["users", "list", "-o", "name"]).expect(EXIT_DONE).lines()[0], "ada");
}

#[test]
fn a_member_is_added_shown_and_removed() {
    let world = World::new();
    let acme = world.create(&["acme"]);

    let added = world
        .run(&["member", "add", "--tenant", "acme", "--login", "ada", "--role", "member"])
        .expect(EXIT_DONE);
    assert!(link(&added).contains("/invitation?token="));
    let ada = added.stdout.trim();
    let by_login =
        world.run(&["member", "get", "ada", "--tenant", "acme", "-o", "json"]).expect(EXIT_DONE).json();
    let by_id = world.run(&["member", "get", ada, "--tenant", &acme, "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!(by_login, by_id);
    assert_eq!((&by_id["id"], &by_id["role"]), (&json!(ada), &json!("member")));

    // Who is there already gets the new role, and needs no link.
    let promoted = world
        .run(&["member", "add", "--tenant", "acme", "--user", "ada", "--role", "operator", "-o", "json"])
        .expect(EXIT_DONE);
    assert_eq!((promoted.json()["role"].as_str(), promoted.stderr.as_str()), (Some("operator"), ""));
    let runner = ["--service-account", "cluster/ci/runner", "--role", "auditor"];
    outcome(world.paddock(&[&["member", "add"], &runner[..]].concat()).env("PADDOCK_TENANT", "acme"))
        .expect(EXIT_DONE);
    let list = world.run(&["member", "list", "--tenant", "acme"]).expect(EXIT_DONE);
    assert_eq!(list.cells()[0], ["NAME", "ID", "LOGIN", "ROLE", "ADDED"]);
    assert_eq!(list.cells().len(), 3);

    let remove =
        |member: &str, flag: &str| world.run(&["member", "remove", member, "--tenant", "acme", flag]);
    remove("ada", "--dry-run").expect(EXIT_DONE);
    remove("cluster/ci/runner", "--yes").expect(EXIT_DONE).says_only("Removed cluster/ci/runner");
    remove("ada", "--yes").expect(EXIT_DONE).says_only(" from tenant acme.");
    remove("ada", "--yes").expect(EXIT_NOT_FOUND);
    assert_eq!(ids(&world.run(&["member", "list", "--tenant", "acme", "-o", "json"]).json()), [""; 0]);
}

#[test]
fn a_group_gathers_people_and_is_given_rights() {
    let world = World::new();
    let acme = world.create(&["acme"]);
    let ada = world.member("acme", "ada", "member");
    let at_acme = |arguments: &[&str]| world.run(&[arguments, &["--tenant", "acme"]].concat());
    let qa = at_acme(&["group", "create", "qa", "--display-name", "Quality"]).expect(EXIT_DONE);
    let qa = qa.stdout.trim();
    at_acme(&["group", "create", "testers"]).expect(EXIT_DONE);

    at_acme(&["group", "member", "add", "testers", "ada"]).expect(EXIT_DONE);
    at_acme(&["group", "member", "add", "qa", "group:testers"]).expect(EXIT_DONE);
    let grant = at_acme(&["grant", "create", "qa", "operator", "tenant:acme"]).expect(EXIT_DONE);
    assert_eq!(grant.stdout, format!("operator@tenant:{acme}\n"));

    let token = world.token_of(&ada);
    let question = ["permission", "check", "can_create_backup", "tenant:acme"];
    world.run_as(&token, &question).expect(EXIT_DONE);
    let me = world.run_as(&token, &["permission", "me"]).expect(EXIT_DONE);
    assert!(me.cells().iter().any(|row| row[..2] == [format!("tenant:{acme}").as_str(), "acme"]), "{me:?}");
    assert_eq!(at_acme(&["grant", "list", "qa", "-o", "name"]).lines(), [grant.stdout.trim()]);
    let members = world.run(&["group", "members", "list", qa, "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!(members["items"][0]["type"], "group");

    at_acme(&["grant", "delete", "qa", "operator@tenant:acme", "--yes"]).expect(EXIT_DONE);
    world.run_as(&token, &question).expect(EXIT_NOT_ALLOWED);
    at_acme(&["group", "member", "remove", "testers", "ada", "--yes"]).expect(EXIT_DONE);
    at_acme(&["group", "member", "remove", "testers", "ada", "--yes"]).expect(EXIT_NOT_FOUND);
    let renamed =
        at_acme(&["group", "update", "qa", "--name", "quality", "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!((&renamed["name"], &renamed["displayName"]), (&json!("quality"), &json!("Quality")));
    at_acme(&["group", "delete", "quality", "--dry-run"]).expect(EXIT_DONE);
    at_acme(&["group", "delete", "quality", "--yes"]).expect(EXIT_DONE).says_only("Deleted group quality");
    assert_eq!(at_acme(&["group", "list", "-o", "name"]).lines(), ["testers"]);
}

#[test]
fn a_group_by_its_name_needs_a_tenant() {
    let world = World::new();
    world.create(&["acme"]);

    world.run(&["group", "get", "qa"]).expect(EXIT_USAGE).says_only("--tenant or PADDOCK_TENANT");
    world
        .run(&["group", "get", "qa", "--tenant", "acme"])
        .expect(EXIT_NOT_FOUND)
        .says_only("no group named qa");
    world
        .run(&["group", "get", "qa", "--tenant", "ajax"])
        .expect(EXIT_NOT_FOUND)
        .says_only("no tenant named ajax");
}

#[test]
fn an_answer_of_no_has_an_exit_code_of_its_own() {
    let world = World::new();
    world.create(&["acme"]);
    let ada = world.member("acme", "ada", "member");
    let check = |arguments: &[&str]| world.run(&[&["permission", "check"], arguments].concat());

    let yes = check(&["can_update", "tenant:acme"]).expect(EXIT_DONE);
    assert_eq!(yes.cells()[1][..2], ["yes", "can_update"]);
    let no = check(&["can_update", "tenant:acme", "--subject", "ada", "--explain"]).expect(EXIT_NOT_ALLOWED);
    assert_eq!(no.cells()[1][0], "no");
    assert!(no.stdout.contains("Any of these would do:\n  "), "{no:?}");
    assert_eq!(no.stderr, "");
    let document = check(&["can_view", "tenant:acme", "--subject", &ada, "--explain", "-o", "json"]);
    let document = document.expect(EXIT_DONE).json();
    assert_eq!((&document["allowed"], &document["subject"]), (&json!(true), &json!(format!("user:{ada}"))));
    assert!(!document["explanation"]["because"].as_array().expect("a list").is_empty());
    assert_eq!(check(&["can_delete", "tenant:acme", "--subject", "ada", "-o", "name"]).stdout, "no\n");
    // What cannot be asked is no answer.
    check(&["can_fly", "tenant:acme"]).expect(EXIT_FAILED).says_only("can_fly");
    check(&["can_view", "tenant:ajax"]).expect(EXIT_NOT_FOUND);
}

#[test]
fn the_last_admin_stays() {
    let world = World::new();
    let ada = world.user("ada");
    let first = world.run(&["admin", "list", "-o", "name"]).expect(EXIT_DONE).lines().remove(0);

    let added = world.run(&["admin", "add", "ada"]).expect(EXIT_DONE);
    assert_eq!(added.stdout, format!("user:{ada}\n"));
    assert_eq!(world.run(&["admin", "list"]).expect(EXIT_DONE).cells().len(), 3);
    world.run(&["admin", "remove", "ada", "--yes"]).expect(EXIT_DONE).says_only("Removed ada");
    world.run(&["admin", "remove", "ada", "--yes"]).expect(EXIT_NOT_FOUND).says_only("is no admin");
    world.run(&["admin", "remove", &first, "--yes"]).expect(EXIT_CONFLICT);
    world.run_as(&world.token_of(&ada), &["admin", "list"]).expect(EXIT_FORBIDDEN).says_only("hint: ");
}

#[test]
fn a_key_stands_alone_on_standard_output_and_is_never_shown_again() {
    let world = World::new();
    world.create(&["acme"]);
    let create =
        ["api-key", "create", "ci", "--tenant", "acme", "--scope", "device:read", "--expires-in", "1h"];

    let created = world.run(&create).expect(EXIT_DONE);
    let document = world.run(&[&create[..], &["-o", "json"]].concat()).expect(EXIT_DONE).json();

    let key = created.stdout.strip_suffix('\n').expect("one line");
    assert!(key.starts_with("pdk_") && key.len() == 42, "{created:?}");
    assert!(created.stderr.contains("Shown once") && !created.stderr.contains(key), "{created:?}");
    assert!(document["key"].as_str().expect("a key").starts_with("pdk_"));
    assert_eq!(document["scopes"], json!(["device:read"]));
    let id = document["id"].as_str().expect("an id");
    let shown = world.run(&["api-key", "get", id, "-o", "json"]).expect(EXIT_DONE).json();
    assert!(shown["key"].is_null());
    assert_eq!(
        world.run(&["api-keys", "list", "--tenant", "acme", "-o", "name"]).expect(EXIT_DONE).lines()[0],
        id
    );
    world.run(&["api-key", "delete", id]).expect(EXIT_USAGE).says_only("--yes");
    world.run(&["api-key", "delete", id, "--yes"]).expect(EXIT_DONE).says_only("Deleted API key ci");
    world.run(&["api-key", "get", id]).expect(EXIT_NOT_FOUND);
}

#[test]
fn the_audit_tells_who_did_what() {
    let world = World::new();
    let acme = world.create(&["acme"]);
    let ada = world.member("acme", "ada", "member");
    world.run_as(&world.token_of(&ada), &["group", "create", "qa", "--tenant", &acme]).expect(EXIT_FORBIDDEN);
    let list = |arguments: &[&str]| world.run(&[&["audit", "list"], arguments].concat()).expect(EXIT_DONE);
    let actions = |arguments: &[&str]| -> Vec<String> {
        let document = list(&[arguments, &["-o", "json"]].concat()).json();
        let items = document["items"].as_array().expect("a list").iter();
        items.map(|item| item["action"].as_str().expect("an action").to_owned()).collect()
    };

    let table = list(&["--tenant", "acme"]);
    assert_eq!(table.cells()[0], ["TIME", "ACTOR", "ACTION", "OBJECT", "OUTCOME"]);
    assert_eq!(table.cells()[1][1..3], [format!("user:{ada}").as_str(), "groups.create"]);
    assert_eq!(table.cells()[1][4], "refused (forbidden)");
    for (arguments, expected) in [
        (&["--actor", "ada"][..], &["groups.create"][..]),
        (&["--tenant", "acme", "--outcome", "refused"], &["groups.create"]),
        (&["--tenant", "acme", "--action", "members."], &["members.add"]),
        (&["--object", "tenant:acme", "--action", "tenants.create"], &["tenants.create"]),
        (&["--action", "tenants.create", "--since", "1h"], &["tenants.create"]),
        (&["--action", "tenants.create", "--until", "1h"], &[]),
        (&["--tenant", "acme", "--since", "2000-01-01", "--limit", "1"], &["groups.create"]),
    ] {
        assert_eq!(actions(arguments), expected, "{arguments:?}");
    }
    world.run(&["audit", "list", "--since", "yesterday"]).expect(EXIT_USAGE).says_only("2026-11-15");
}

#[test]
fn a_list_goes_on_where_another_ended() {
    let world = World::new();
    world.create(&["acme"]);
    // More events than one page of the audit holds by default.
    for number in 0..60 {
        world.create(&[&format!("t{number}")]);
    }
    let list = |arguments: &[&str]| world.run(arguments).expect(EXIT_DONE);

    let all = list(&["audit", "list", "--all", "-o", "json"]).json();
    let some = list(&["audit", "list", "-o", "json"]);
    let cursor = some.json()["nextCursor"].as_str().expect("a cursor").to_owned();
    let rest = list(&["audit", "list", "--all", "--cursor", &cursor, "-o", "json"]).json();

    assert!(some.stderr.contains(&format!("--cursor {cursor}")), "{}", some.stderr);
    assert_eq!(ids(&some.json()).len(), 50);
    assert_eq!([ids(&some.json()), ids(&rest)].concat(), ids(&all));
    let first = list(&["tenant", "list", "--limit", "3", "-o", "json"]).json();
    let next = first["nextCursor"].as_str().expect("a cursor");
    let names = list(&["tenant", "list", "--limit", "2", "--cursor", next, "-o", "name"]).lines();
    assert_eq!(names, ["t56", "t55"]);
    world.run(&["tenant", "list", "--cursor", "nonsense"]).expect(EXIT_FAILED).says_only("cursor");
}

#[test]
fn a_long_list_waits_where_the_server_wants_fewer_requests() {
    let world = World::with(&["--limits-costly-per-minute", "60"]);
    // One more event than the largest page holds.
    world.tenants(&(0..201).map(|number| format!("t{number}")).collect());
    while world.run(&["audit", "list", "--limit", "1"]).exit != Some(EXIT_TOO_MANY) {}
    // Time for the first page, but not yet for the second.
    thread::sleep(Duration::from_millis(1200));

    let all = world.run(&["audit", "list", "--action", "tenants.create", "--all", "-o", "json"]);

    assert_eq!(ids(&all.expect(EXIT_DONE).json()).len(), 201);
}

#[test]
fn who_does_not_exist_is_not_found() {
    let world = World::new();
    world.create(&["acme"]);

    for arguments in [
        &["user", "get", "nobody"][..],
        &["user", "get", NOBODY],
        &["user", "get", "No Body"],
        &["user", "invite", "nobody"],
        &["member", "get", "nobody", "--tenant", "acme"],
        &["member", "get", NOBODY, "--tenant", "acme"],
        &["member", "get", "cluster/ci/runner", "--tenant", "acme"],
        &["member", "list", "--tenant", "ajax"],
        &["admin", "add", "nobody"],
        &["api-key", "get", "key_00000000000000000000000000"],
        &["audit", "list", "--actor", "nobody"],
    ] {
        world.run(arguments).expect(EXIT_NOT_FOUND).says_only("error: There is no ");
    }
}

/// Stands between the program and the server, and swallows the first answer.
fn deaf_once(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for (number, connection) in listener.incoming().enumerate() {
            let (mut client, mut server) =
                (connection.expect("a connection"), TcpStream::connect(&server).expect("the server"));
            let (mut upwards, mut to_server) =
                (client.try_clone().expect("a clone"), server.try_clone().expect("a clone"));
            thread::spawn(move || std::io::copy(&mut upwards, &mut to_server));
            let mut answer = [0; 1];
            if number == 0 {
                server.read_exact(&mut answer).expect("an answer");
                client.shutdown(Shutdown::Both).expect("a closed connection");
            } else {
                thread::spawn(move || std::io::copy(&mut server, &mut client));
            }
        }
    });
    format!("http://{address}")
}

#[test]
fn a_lost_answer_makes_nothing_twice() {
    let world = World::new();
    let url = deaf_once(world.server.address.to_string());

    let created =
        outcome(world.paddock(&["user", "create", "ada"]).env("PADDOCK_URL", url)).expect(EXIT_DONE);

    assert!(created.stderr.contains("paddock user invite ada"), "{created:?}");
    let users = world.run(&["user", "list", "--login", "ada", "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!(ids(&users), [created.stdout.trim()]);
}

#[test]
fn a_lost_key_is_a_failure_that_names_it() {
    let world = World::new();
    let acme = world.create(&["acme"]);
    let url = deaf_once(world.server.address.to_string());
    let create = ["api-key", "create", "ci", "--tenant", &acme, "--scope", "device:read"];

    let lost = outcome(world.paddock(&create).env("PADDOCK_URL", url)).expect(EXIT_FAILED);

    let keys = world.run(&["api-key", "list", "-o", "name"]).expect(EXIT_DONE).lines();
    assert_eq!(keys.len(), 1);
    lost.says_only(&format!("paddock api-key delete {}", keys[0]));
}

/// A server that shows a certificate signed by itself, and the file that holds it.
fn self_signed(folder: &Path, name: &str, constraint: &str) -> (World, String) {
    let file = |ending: &str| folder.join(format!("{name}.{ending}")).to_str().expect("text").to_owned();
    let (key, certificate) = (file("key"), file("pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", constraint, "-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    (World::with(&["--tls-certificate", &certificate, "--tls-key", &key]), certificate)
}

#[test]
fn a_certificate_of_ones_own_is_trusted_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let (world, certificate) = self_signed(folder.path(), "own", "basicConstraints=critical,CA:FALSE");
    let (empty, absent) = (folder.path().join("empty.pem"), folder.path().join("absent.pem"));
    std::fs::write(&empty, "none\n").expect("a file");
    let whoami = |world: &World, file: Option<&str>| {
        let mut command = world.paddock(&["whoami", "-o", "name"]);
        command.env("PADDOCK_URL", format!("https://{}", world.server.address));
        outcome(command.args(file.iter().flat_map(|file| ["--ca-file", file])))
    };

    whoami(&world, None).expect(EXIT_SERVER).says_only("--ca-file");
    whoami(&world, Some(&certificate)).expect(EXIT_DONE);
    whoami(&world, empty.to_str()).expect(EXIT_USAGE).says_only("certificate");
    whoami(&world, absent.to_str()).expect(EXIT_USAGE).says_only("cannot read");

    // What openssl makes where nobody says otherwise.
    let (world, root) = self_signed(folder.path(), "root", "basicConstraints=critical,CA:TRUE");
    whoami(&world, Some(&root)).expect(EXIT_SERVER).says_only("CA:FALSE");
}
