//! What a user gets from the command line when a server answers.

mod world;

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};
use world::{
    EXIT_CONFLICT, EXIT_DONE, EXIT_FAILED, EXIT_NOT_AUTHENTICATED, EXIT_NOT_FOUND, EXIT_USAGE, World,
    outcome, with_input,
};

/// A well-formed id that no tenant has.
const NOBODY: &str = "ten_00000000000000000000000000";

#[test]
fn a_pipe_gets_only_the_id_of_what_was_created() {
    let world = World::new();

    let created = world.run(&["tenant", "create", "acme"]).expect(EXIT_DONE);

    assert_eq!(created.stderr, "");
    let id = created.stdout.strip_suffix('\n').expect("one line");
    assert_eq!(world.tenant("acme")["id"], id);
}

#[test]
fn what_is_created_can_be_shown_in_the_chosen_format() {
    let world = World::new();
    let create = |name, format| world.run(&["tenant", "create", name, "-o", format]).expect(EXIT_DONE);

    assert_eq!(create("a", "name").stdout, "a\n");
    assert_eq!(create("b", "json").json(), world.tenant("b"));
    assert_eq!(create("c", "yaml").yaml(), world.tenant("c"));
    assert_eq!(create("d", "table").cells()[1][0], "d");
}

#[test]
fn a_tenant_is_found_by_name_and_by_id() {
    let world = World::new();
    world.create(&["acme", "--display-name", "Acme Motors", "--label", "team=maps"]);

    let by_name = world.tenant("acme");
    let by_id = world.tenant(by_name["id"].as_str().expect("an id"));

    assert_eq!(by_name, by_id);
    assert_eq!(by_name["name"], "acme");
    assert_eq!(by_name["displayName"], "Acme Motors");
    assert_eq!(by_name["labels"], json!({ "team": "maps" }));
}

#[test]
fn a_list_has_a_row_for_each_tenant_newest_first() {
    let world = World::new();
    world.create(&["acme", "--display-name", "Acme Motors", "--label", "team=maps"]);
    world.create(&["ajax"]);
    let (acme, ajax) = (world.tenant("acme"), world.tenant("ajax"));
    let text = |tenant: &Value, member: &str| tenant[member].as_str().expect("text").to_owned();

    let table = world.run(&["tenant", "list"]).expect(EXIT_DONE);
    let wide = world.run(&["tenants", "list", "-o", "wide"]).expect(EXIT_DONE);

    assert_eq!(table.stderr, "");
    assert_eq!(
        table.cells(),
        [
            vec!["NAME", "ID", "DISPLAY NAME", "CREATED"],
            vec!["ajax", &text(&ajax, "id"), "ajax", &text(&ajax, "createdAt")],
            vec!["acme", &text(&acme, "id"), "Acme Motors", &text(&acme, "createdAt")],
        ]
    );
    assert_eq!(wide.cells()[0], ["NAME", "ID", "DISPLAY NAME", "CREATED", "UPDATED", "LABELS"]);
    assert_eq!(wide.cells()[2][4..], [&text(&acme, "updatedAt"), "team=maps"]);
}

#[test]
fn a_list_is_a_document_for_programs() {
    let world = World::new();
    world.create(&["acme", "--label", "team=maps"]);
    world.create(&["ajax"]);
    let expected = json!({ "items": [world.tenant("ajax"), world.tenant("acme")], "nextCursor": null });

    assert_eq!(world.run(&["tenant", "list", "-o", "json"]).expect(EXIT_DONE).json(), expected);
    assert_eq!(world.run(&["tenant", "list", "-o", "yaml"]).expect(EXIT_DONE).yaml(), expected);
    assert_eq!(world.run(&["tenant", "list", "-o", "name"]).expect(EXIT_DONE).stdout, "ajax\nacme\n");
}

#[test]
fn a_list_shows_only_what_was_asked_for() {
    let world = World::new();
    world.create(&["acme", "--label", "team=maps", "--label", "tier=gold"]);
    world.create(&["ajax", "--label", "team=maps"]);
    world.create(&["atlas"]);

    for (arguments, expected) in [
        (&["--limit", "2"][..], &["atlas", "ajax"][..]),
        (&["--limit", "300"], &["atlas", "ajax", "acme"]),
        (&["--name", "ajax"], &["ajax"]),
        (&["-l", "team=maps"], &["ajax", "acme"]),
        (&["-l", "team=maps,tier!=gold"], &["ajax"]),
        (&["-l", "tier"], &["acme"]),
        (&["-l", "team=maps", "--limit", "1"], &["ajax"]),
        (&["--name", "nobody"], &[]),
    ] {
        let list = [&["tenant", "list", "-o", "name"], arguments].concat();
        assert_eq!(world.run(&list).expect(EXIT_DONE).lines(), expected, "{arguments:?}");
    }
}

#[test]
fn an_empty_list_says_so_beside_the_data() {
    let world = World::new();

    world.run(&["tenant", "list"]).expect(EXIT_DONE).says_only("Nothing found.");
    let document = world.run(&["tenant", "list", "-o", "json"]).expect(EXIT_DONE);

    assert_eq!(document.json(), json!({ "items": [], "nextCursor": null }));
    assert_eq!(document.stderr, "");
}

#[test]
fn a_list_is_whole_however_many_pages_it_takes() {
    // One more than the largest page holds.
    let made: BTreeSet<String> = (0..201).map(|number| format!("t{number}")).collect();
    let world = World::new();
    world.tenants(&made);
    let names = |document: &Value| -> Vec<String> {
        let items = document["items"].as_array().expect("a list");
        items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };

    let page = world.run(&["api", "GET", "/tenants"]).expect(EXIT_DONE).json();
    let pages = world.run(&["api", "GET", "/tenants", "--paginate"]).expect(EXIT_DONE).json();
    let small_pages =
        world.run(&["api", "GET", "/tenants?limit=7", "--paginate", "-o", "yaml"]).expect(EXIT_DONE);
    let cut = world.run(&["tenant", "list", "--limit", "2", "-o", "json"]).expect(EXIT_DONE).json();

    let all = names(&pages);
    assert_eq!(all.len(), made.len());
    assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>(), made);
    assert!(pages["nextCursor"].is_null());
    assert_eq!(small_pages.yaml(), pages);
    assert_eq!(world.names(), all);
    assert_eq!(names(&page), all[..50]);
    assert_eq!(names(&cut), all[..2]);
    // From here a program can go on.
    assert!(page["nextCursor"].is_string() && cut["nextCursor"].is_string());
}

#[test]
fn only_a_list_has_pages() {
    let world = World::new();

    world
        .run(&["api", "GET", "/-/version", "--paginate"])
        .expect(EXIT_USAGE)
        .says_only("leave out --paginate");
}

#[test]
fn an_update_keeps_what_is_not_named() {
    let world = World::new();
    world.create(&["acme", "--display-name", "Acme", "--label", "team=maps"]);
    let before = world.tenant("acme");
    let id = before["id"].as_str().expect("an id");

    for (change, name, display_name) in [
        (["--display-name", "Acme Motors"], "acme", "Acme Motors"),
        (["--name", "acme-motors"], "acme-motors", "Acme Motors"),
    ] {
        let update = [&["tenant", "update", id, "-o", "json"], &change[..]].concat();
        let after = world.run(&update).expect(EXIT_DONE).json();

        assert_eq!(after["name"], name);
        assert_eq!(after["displayName"], display_name);
        for member in ["id", "labels", "createdAt"] {
            assert_eq!(after[member], before[member], "{change:?}");
        }
        assert_eq!(after, world.tenant(name));
    }
}

#[test]
fn labels_are_written_changed_and_taken_off_one_by_one() {
    let world = World::new();
    world.create(&["acme", "--label", "team=maps", "--label", "owner=me"]);

    for (change, expected) in [
        (&["--label", "tier=test"][..], json!({ "owner": "me", "team": "maps", "tier": "test" })),
        (&["--label", "tier=gold", "--remove-label", "owner"], json!({ "team": "maps", "tier": "gold" })),
        (&["--remove-label", "absent"], json!({ "team": "maps", "tier": "gold" })),
        (&["--remove-label", "team", "--remove-label", "tier"], json!({})),
    ] {
        world.run(&[&["tenant", "update", "acme"], change].concat()).expect(EXIT_DONE);
        assert_eq!(world.tenant("acme")["labels"], expected, "{change:?}");
    }
}

#[test]
fn without_a_terminal_only_yes_deletes() {
    let world = World::new();
    let id = world.create(&["acme"]);

    // An answer in a pipe is no answer: it may be anybody's.
    with_input(&mut world.paddock(&["tenant", "delete", "acme"]), "y\n")
        .expect(EXIT_USAGE)
        .says_only("--yes");
    assert_eq!(world.names(), ["acme"]);

    let deleted = world.run(&["tenant", "delete", "acme", "--yes"]).expect(EXIT_DONE);
    deleted.says_only(&format!("Deleted tenant acme ({id})."));
    assert!(world.names().is_empty());
}

#[test]
fn a_dry_run_shows_what_would_go_and_deletes_nothing() {
    let world = World::new();
    world.create(&["acme"]);

    for extra in [&[][..], &["--yes"]] {
        let delete = [&["tenant", "delete", "acme", "--dry-run", "-o", "name"], extra].concat();
        let outcome = world.run(&delete).expect(EXIT_DONE);

        assert_eq!(outcome.stdout, "acme\n");
        assert!(outcome.stderr.contains("Would delete tenant acme"), "{outcome:?}");
        assert_eq!(world.names(), ["acme"]);
    }
}

#[test]
fn what_does_not_exist_is_not_found() {
    let world = World::new();

    for tenant in ["nobody", "Nobody", NOBODY, "ten_no-id", "ten_../ten"] {
        for arguments in [
            &["tenant", "get", tenant][..],
            &["tenant", "update", tenant, "--display-name", "Nobody"],
            &["tenant", "delete", tenant, "--yes"],
            &["tenant", "delete", tenant, "--dry-run"],
        ] {
            world.run(arguments).expect(EXIT_NOT_FOUND).says_only("error: There is no ");
        }
    }
    world
        .run(&["api", "GET", &format!("/tenants/{NOBODY}")])
        .expect(EXIT_NOT_FOUND)
        .says_only("There is no ");
}

#[test]
fn a_name_that_is_taken_is_a_conflict() {
    let world = World::new();
    world.create(&["acme"]);
    world.create(&["ajax"]);

    for arguments in [
        &["tenant", "create", "acme"][..],
        &["tenant", "update", "ajax", "--name", "acme"],
        &["api", "POST", "/tenants", "--body", r#"{"name": "acme"}"#],
    ] {
        world.run(arguments).expect(EXIT_CONFLICT).says_only("error: ");
    }
    assert_eq!(world.names(), ["ajax", "acme"]);
}

#[test]
fn an_old_version_overwrites_nothing() {
    let world = World::new();
    let id = world.create(&["acme"]);
    world.run(&["tenant", "update", "acme", "--display-name", "Acme Motors"]).expect(EXIT_DONE);

    let path = format!("/tenants/{id}");
    let stale = world.run(&["api", "DELETE", &path, "-H", "If-Match: \"1\""]);

    stale.expect(EXIT_CONFLICT).says_only("Run the command again");
    assert_eq!(world.names(), ["acme"]);
}

#[test]
fn a_fault_is_shown_with_the_place_where_it_stands() {
    let world = World::new();
    world.create(&["acme"]);

    for (arguments, place) in [
        (&["tenant", "create", "Acme"][..], "\n  /name: "),
        (&["tenant", "create", ""], "\n  /name: "),
        (&["tenant", "create", "ajax", "--label", "Team=maps"], "\n  /labels"),
        (&["tenant", "update", "acme", "--name", "-"], "\n  /name: "),
        (&["tenant", "list", "-l", "team=maps,=x"], "\n  /labelSelector: "),
        (&["api", "GET", "/tenants?colour=red"], "colour"),
    ] {
        world.run(arguments).expect(EXIT_FAILED).says_only(place);
    }
    assert_eq!(world.names(), ["acme"]);
}

#[test]
fn a_program_reads_the_problem_as_the_server_wrote_it() {
    let world = World::new();

    let outcome = world.run(&["tenant", "create", "Acme", "-o", "json"]).expect(EXIT_FAILED);

    let problem: Value = serde_json::from_str(&outcome.stderr).expect("the failure is JSON");
    assert_eq!(outcome.stdout, "");
    assert_eq!(problem["status"], 422);
    assert_eq!(problem["errors"][0]["pointer"], "/name");
    assert!(problem["requestId"].is_string());
}

#[test]
fn only_a_valid_token_opens_the_door() {
    let world = World::new();
    let of_another_server = World::new().token;
    let list = ["tenant", "list"];

    outcome(&mut world.stranger(&list)).expect(EXIT_NOT_AUTHENTICATED).says_only("PADDOCK_TOKEN");
    for token in ["wrong", &format!("{}x", world.token), &of_another_server] {
        let refused = outcome(world.stranger(&list).env("PADDOCK_TOKEN", token));

        refused.expect(EXIT_NOT_AUTHENTICATED).says_only("paddock auth login");
    }
}

#[test]
fn a_token_comes_from_an_option_a_file_or_the_environment() {
    let world = World::new();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "{}", world.token).expect("a written token");
    let path = file.path().display().to_string();

    for arguments in [&["--token", world.token.as_str()], &["--token-file", path.as_str()]] {
        let list = [&["tenant", "list"], &arguments[..]].concat();
        // What stands on the command line goes before the environment.
        outcome(world.stranger(&list).env("PADDOCK_TOKEN", "wrong")).expect(EXIT_DONE);
    }
    world.run(&["tenant", "list"]).expect(EXIT_DONE);
}

#[test]
fn any_request_can_be_sent_and_its_body_piped_on() {
    let world = World::new();
    let created = world.run(&["api", "POST", "/tenants", "--body", r#"{"name": "acme"}"#]).expect(EXIT_DONE);
    assert_eq!(created.json(), world.tenant("acme"));

    let mut post = world.paddock(&["api", "post", "tenants", "--body", "-", "-o", "yaml"]);
    let piped = with_input(&mut post, r#"{"name": "ajax", "labels": {"team": "maps"}}"#).expect(EXIT_DONE);
    assert_eq!(piped.yaml(), world.tenant("ajax"));

    let path = format!("/api/v1/tenants/{}", created.json()["id"].as_str().expect("an id"));
    let deleted = world.run(&["api", "DELETE", &path]).expect(EXIT_DONE);
    assert_eq!((deleted.stdout.as_str(), deleted.stderr.as_str()), ("", ""));
    assert_eq!(world.names(), ["ajax"]);
}

#[test]
fn a_request_that_is_sent_twice_with_a_key_is_carried_out_once() {
    let world = World::new();
    let create = ["api", "POST", "/tenants", "--body", r#"{"name": "acme"}"#, "-H", "Idempotency-Key: once"];

    let first = world.run(&create).expect(EXIT_DONE);
    let second = world.run(&create).expect(EXIT_DONE);

    assert_eq!(first.stdout, second.stdout);
    assert_eq!(world.names(), ["acme"]);
}

#[test]
fn the_version_of_the_server_is_shown_to_everybody() {
    let world = World::new();
    let version = env!("CARGO_PKG_VERSION");

    let table = outcome(&mut world.stranger(&["version"])).expect(EXIT_DONE);
    let document = outcome(&mut world.stranger(&["version", "-o", "json"])).expect(EXIT_DONE).json();

    assert_eq!(table.cells(), [["PART", "VERSION"], ["client", version], ["server", version]]);
    assert_eq!(table.stderr, "");
    assert_eq!(document["server"]["version"], version);
    assert_eq!(document["server"]["commit"], "unknown");
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let world = World::new();
    world.create(&["acme"]);
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);

    let outcome = outcome(world.paddock(&["tenant", "list"]).stdout(writer)).expect(EXIT_DONE);

    assert_eq!(outcome.stderr, "");
}
