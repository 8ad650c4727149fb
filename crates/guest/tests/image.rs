//! The images themselves: the same input gives the same bytes.

mod world;

use std::fs;
use std::path::Path;
use std::process::Command;

use world::{folder, images};

#[test]
fn building_twice_gives_the_same_bytes() {
    let built = images();
    let kernel = built.parent().expect("the cache").join("kernel");
    let again = folder();

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../image/build");
    let outcome = Command::new(script)
        .arg(built.join("paddock-guest"))
        .arg(kernel)
        .arg(again.path())
        .output()
        .expect("a shell");

    assert!(outcome.status.success(), "{outcome:?}");
    let sums = |folder: &Path| fs::read_to_string(folder.join("SHA256SUMS")).expect("sums");
    assert_eq!(sums(&built), sums(again.path()));
}

#[test]
fn the_profiles_name_files_that_are_there() {
    let images = images();
    for kind in ["phone", "automotive"] {
        let text = fs::read_to_string(images.join(format!("{kind}.profile.json"))).expect("a profile");
        let profile: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(profile["deviceType"], kind);
        for file in ["/boot/kernel", "/boot/initramfs", "/disks/0/file"] {
            let name = profile.pointer(file).and_then(|name| name.as_str()).expect("a name");
            assert!(images.join(name).exists(), "{name}");
        }
    }
}
