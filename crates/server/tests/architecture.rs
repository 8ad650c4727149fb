//! The house as it was drawn: which crate may know which, read from manifests and `use` lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Who may know whom. A crate that is not here is not in the drawing.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("store", &["model"]),
    ("drivers", &["model"]),
    ("vehicle", &["model"]),
    ("engine", &["store", "model"]),
    ("api", &[]),
    ("server", &["api", "engine", "drivers", "vehicle", "model"]),
    ("cli", &["api"]),
    ("guest", &[]),
    // A clone of a disk is part of a deploy, so no API measures it alone; the pool is asked through its port. A car stands alone behind
    // a proxy that is compared with ours.
    ("bench", &["drivers", "vehicle", "model"]),
];

/// Heavy things stay behind one wall: nobody else may depend on them.
const WALLS: &[(&str, &[&str])] = &[
    ("rusqlite", &["store", "bench"]),
    ("tokio-postgres", &["store"]),
    ("deadpool-postgres", &["store"]),
    ("axum", &["server"]),
    ("jsonschema", &["server"]),
    ("clap", &["server", "cli"]),
    ("tonic", &["vehicle", "server", "bench"]),
];

const NAMELESS: &[&str] = &["util", "utils", "common", "helpers", "helper", "misc", "shared"];

struct Member {
    name: String,
    folder: PathBuf,
    manifest: toml::Table,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn members() -> Vec<Member> {
    let crates =
        std::fs::read_dir(root().join("crates")).expect("crates").map(|entry| entry.expect("a crate").path());
    let folders = crates.filter(|path| path.join("Cargo.toml").exists()).chain([root().join("bench")]);
    let members = folders.map(|folder| {
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let name = folder.file_name().expect("a name").to_str().expect("text").to_owned();
        Member { name, folder, manifest: text.parse().expect("TOML") }
    });
    members.collect()
}

fn dependencies(member: &Member, table: &str) -> BTreeSet<String> {
    member
        .manifest
        .get(table)
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(|table| table.keys().cloned())
        .collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_crate_is_in_the_drawing_and_has_content() {
    let drawn: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let members = members();
    let found: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(found, drawn);
    for member in &members {
        let lines: usize = sources(&member.folder.join("src"))
            .iter()
            .map(|path| std::fs::read_to_string(path).expect("text").lines().count())
            .sum();
        assert!(lines > 20, "{} stands empty", member.name);
    }
}

#[test]
fn manifests_hold_only_the_arrows_that_were_drawn() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for member in members() {
        for table in ["dependencies", "build-dependencies"] {
            for dependency in dependencies(&member, table) {
                if let Some(other) = dependency.strip_prefix("paddock-") {
                    assert!(
                        arrows[member.name.as_str()].contains(&other),
                        "{} must not know {other}",
                        member.name
                    );
                }
                if let Some((_, allowed)) = WALLS.iter().find(|(heavy, _)| *heavy == dependency) {
                    assert!(
                        allowed.contains(&member.name.as_str()),
                        "{dependency} stays out of {}",
                        member.name
                    );
                }
            }
        }
    }
}

#[test]
fn sources_use_only_the_crates_that_were_drawn() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut seen = 0;
    for member in members() {
        for path in sources(&member.folder.join("src")) {
            let source = std::fs::read_to_string(&path).expect("text");
            for (at, _) in source.match_indices("paddock_") {
                let name: String =
                    source[at + "paddock_".len()..].chars().take_while(char::is_ascii_lowercase).collect();
                let rest = &source[at + "paddock_".len() + name.len()..];
                // Names of metrics look alike; a crate is followed by a path.
                if arrows.contains_key(name.as_str()) && rest.starts_with("::") && name != member.name {
                    seen += 1;
                    assert!(
                        arrows[member.name.as_str()].contains(&name.as_str()),
                        "{} uses {name}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} uses were seen; does the search still fit the sources?");
}

#[test]
fn the_drawing_has_no_circle() {
    let mut left: BTreeMap<&str, Vec<&str>> = ARROWS.iter().map(|(name, to)| (*name, to.to_vec())).collect();
    while !left.is_empty() {
        let grounded: Vec<&str> = left
            .iter()
            .filter(|(_, to)| to.iter().all(|other| !left.contains_key(other)))
            .map(|(name, _)| *name)
            .collect();
        assert!(!grounded.is_empty(), "a circle among {:?}", left.keys());
        left.retain(|name, _| !grounded.contains(name));
    }
}

/// Within a crate, too: a noun may use another, but never in a circle.
#[test]
fn the_nouns_of_a_crate_form_no_circle() {
    let mut seen = 0;
    for (folder, prefixes, without) in [
        ("model/src", &["crate::"][..], &[][..]),
        ("store/src", &["crate::"], &[]),
        ("engine/src", &["crate::"], &[]),
        // The caller is read off a request, so that those who read know the surface and the surface knows them.
        ("server/src", &["crate::"], &["http", "main"]),
        ("server/src/http", &["crate::http::", "super::"], &[]),
    ] {
        let uses = uses_within(&root().join("crates").join(folder), prefixes, without);
        seen += uses.values().map(BTreeSet::len).sum::<usize>();
        let mut left = uses;
        while !left.is_empty() {
            let grounded: Vec<String> = left
                .iter()
                .filter(|(_, to)| to.iter().all(|other| !left.contains_key(other)))
                .map(|(name, _)| name.clone())
                .collect();
            assert!(!grounded.is_empty(), "{folder}: a circle among {left:?}");
            left.retain(|name, _| !grounded.contains(name));
        }
    }
    assert!(seen > 60, "only {seen} uses were seen; does the search still fit the sources?");
}

/// Which module of a folder uses which others of it.
fn uses_within(folder: &Path, prefixes: &[&str], without: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let stem = |path: PathBuf| path.file_stem().expect("a name").to_str().expect("text").to_owned();
    let entries = std::fs::read_dir(folder).expect("sources").map(|entry| entry.expect("an entry").path());
    let modules: BTreeSet<String> = entries
        .map(stem)
        .filter(|name| !matches!(name.as_str(), "lib" | "tests") && !without.contains(&name.as_str()))
        .collect();
    let uses = modules.iter().map(|module| {
        let files = [sources(&folder.join(module)), vec![folder.join(format!("{module}.rs"))]].concat();
        let sources = files.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        // Each file without its tests, which may know anything.
        let product: String = sources
            .map(|source| source.split("#[cfg(test)]").next().unwrap_or_default().to_owned())
            .collect();
        let mut named: BTreeSet<String> =
            prefixes.iter().flat_map(|prefix| used_modules(&product, prefix)).collect();
        named.retain(|other| other != module && modules.contains(other));
        (module.clone(), named)
    });
    uses.collect()
}

/// The modules behind `crate::name` and inside `crate::{…}`.
fn used_modules(source: &str, prefix: &str) -> BTreeSet<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '_').collect()
    };
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices(prefix) {
        let rest = &source[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let end = list.find(';').unwrap_or(list.len());
                found.extend(list[..end].split(',').map(name));
            }
            None => {
                found.insert(name(rest));
            }
        }
    }
    found
}

#[test]
fn every_file_says_what_it_is_for_and_has_a_name() {
    for member in members() {
        for path in sources(&member.folder.join("src")) {
            let source = std::fs::read_to_string(&path).expect("text");
            assert!(source.starts_with("//! "), "{} does not open with a sentence", path.display());
            let stem = path.file_stem().expect("a name").to_str().expect("text");
            assert!(!NAMELESS.contains(&stem), "{}: name it for what it holds", path.display());
        }
    }
}

/// The noun is the file's name in every layer.
#[test]
fn a_noun_has_one_name_in_every_layer() {
    for noun in [
        "api_keys",
        "audit",
        "backups",
        "emulators",
        "groups",
        "invitations",
        "restores",
        "retention_policies",
        "snapshots",
        "tenants",
        "users",
    ] {
        for layer in ["model", "store", "engine", "api", "server/src/http", "cli"] {
            let folder = if layer.contains('/') {
                root().join("crates").join(layer)
            } else {
                root().join("crates").join(layer).join("src")
            };
            assert!(folder.join(format!("{noun}.rs")).exists(), "{noun} has no room in {layer}");
        }
    }
}
