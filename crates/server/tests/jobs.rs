//! Three CI jobs in a row on real devices, by the very script that the guide gives to people: curl and `adb`, nothing else.

mod daemon;
mod yard;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::{Adb, Data, Phone, Yard, apk};

const EMULATORS: &str = "/api/v1/emulators";
const SNAPSHOTS: &str = "/api/v1/snapshots";
const KEY: &str = "acme/app main phone";

/// The script in the guide.
fn script() -> String {
    let guide = include_str!("../../../docs/guide/ci.md");
    let script = guide.split("```sh\n").find(|part| part.starts_with("#!/bin/sh")).expect("a script");
    script.split("```").next().expect("its end").to_owned()
}

struct Pipeline<'a> {
    yard: &'a Yard<'a>,
    tenant: &'a str,
}

impl Pipeline<'_> {
    /// Runs a job; what it said, and whether it succeeded.
    fn run(&self, capture: &str, command: &str) -> (String, bool) {
        let file = self.yard.data.path().join("job.sh");
        std::fs::write(&file, script()).expect("a file");
        let ran = Command::new("timeout")
            .args(["280", "sh"])
            .arg(&file)
            .args(["sh", "-euc", command])
            .envs([
                ("PADDOCK_URL", self.yard.daemon.url("")),
                ("PADDOCK_TOKEN", self.yard.token().to_owned()),
            ])
            .envs([("PADDOCK_TENANT", self.tenant), ("KEY", KEY), ("CAPTURE", capture)])
            .output()
            .expect("a shell with curl and jq");
        let said =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        println!("{said}");
        (said, ran.status.success())
    }

    /// The newest capture, once it can be deployed.
    async fn newest(&self, but: usize) -> Value {
        let path = format!("{SNAPSHOTS}?tenantId={}&deployable=true", self.tenant);
        let started = Instant::now();
        loop {
            let page = self.yard.call("GET", &path, None).await;
            let items = page["items"].as_array().expect("a list");
            let ours: Vec<&Value> = items.iter().filter(|item| item["origin"]["kind"] == "ci").collect();
            if ours.len() > but {
                return ours[0].clone();
            }
            assert!(started.elapsed() < Duration::from_secs(120), "{page}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

#[tokio::test]
async fn three_jobs_hand_their_device_on_by_curl() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let pipeline = Pipeline { yard: &yard, tenant: &tenant };
    let package = data.path().join("app.apk");
    std::fs::write(&package, apk("com.acme.app")).expect("a file");
    let adb_command = |arguments: &str| {
        let command = adb.command(&[]);
        let words: Vec<&str> = command.get_args().map(|word| word.to_str().expect("text")).collect();
        format!("timeout {} {arguments}", words.join(" "))
    };
    let connect = adb_command("connect $PADDOCK_ADB_SERIAL");
    let on_device = |line: &str| adb_command(&format!("-s $PADDOCK_ADB_SERIAL {line}"));

    // The first finds nothing, and puts something onto the device.
    let install = on_device(&format!("install {}", package.display()));
    let note = on_device("shell 'echo first > /data/kept'");
    let (said, succeeded) = pipeline.run("success", &format!("{connect}; {install}; {note}"));
    assert!(succeeded && said.contains("(root)") && said.contains("success: captured "), "{said}");
    let first = pipeline.newest(0).await;
    assert_eq!(
        (&first["origin"]["key"], &first["origin"]["jobStatus"]),
        (&json!(KEY), &json!("success")),
        "{first}"
    );
    assert_eq!(
        (&first["consistency"], &first["trust"]),
        (&json!("filesystem"), &json!("internal")),
        "{first}"
    );
    let name = first["name"].as_str().expect("a name");

    // The second has it.
    let look = format!(
        "{}; {}",
        on_device("shell pm list packages | grep -q com.acme.app"),
        on_device("shell 'test \"$(cat /data/kept)\" = first'")
    );
    let (said, succeeded) = pipeline.run("never", &format!("{connect}; {look}"));
    assert!(
        succeeded && said.contains(&format!("{name} (exact)")) && said.contains("success: not_asked"),
        "{said}"
    );

    // The third fails, and what it leaves can be looked at.
    let broken = on_device("shell 'echo broken > /data/kept; sync'");
    let (said, succeeded) = pipeline.run("failure", &format!("{connect}; {broken}; exit 1"));
    assert!(
        !succeeded && said.contains(&format!("{name} (exact)")) && said.contains("failure: captured "),
        "{said}"
    );
    let third = pipeline.newest(1).await;
    assert_eq!(
        (&third["origin"]["jobStatus"], &third["parent"]),
        (&json!("failure"), &json!(name)),
        "{third}"
    );
    let body = json!({ "tenantId": tenant, "snapshot": third["name"] });
    let phone = Phone::read(&yard.call("POST", EMULATORS, Some(body)).await);
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "cat /data/kept"), "broken");
    yard.call("DELETE", &format!("{EMULATORS}/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
    assert_eq!(data.leftovers(), [] as [std::path::PathBuf; 0]);
    yard.sound();
}
