//! The daemon is killed at every step of a device's life, and its devices too: in the end everything is as wanted, and
//! nothing is left of what is not.

mod daemon;
mod yard;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::{Data, Yard, is_long};

const EMULATORS: &str = "/api/v1/emulators";

/// Kills a daemon at a step; see `kills.c`, which shares the file with us.
struct Kills {
    library: PathBuf,
    file: PathBuf,
}

impl Kills {
    fn new(data: &Data) -> Kills {
        let library = data.path().with_extension("so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kills.c");
        let made =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", source, "-ldl", "-o"]).arg(&library).output();
        let made = made.expect("a C compiler");
        assert!(made.status.success(), "{made:?}");
        let file = data.path().with_extension("kills");
        fs::write(&file, [0; 256]).expect("a file");
        Kills { library, file }
    }

    fn environment(&self) -> [(&str, &str); 2] {
        let [library, file] = [&self.library, &self.file].map(|path| path.to_str().expect("text"));
        [("LD_PRELOAD", library), ("KILLS", file)]
    }

    fn write(&self, left: i64) {
        let file = File::options().write(true).open(&self.file).expect("the file");
        let words = [left, 0, i64::from(is_long())];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, 0).expect("written");
    }

    /// From now on the daemon has so many steps to live.
    fn arm(&self, steps: i64) {
        assert!(steps > 0);
        self.write(steps);
    }

    /// How many steps there were, and it goes on living.
    fn disarm(&self) -> i64 {
        let bytes = fs::read(&self.file).expect("the file");
        self.write(0);
        i64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"))
    }

    fn last(&self) -> String {
        let bytes = fs::read(&self.file).expect("the file");
        String::from_utf8_lossy(&bytes[24..]).trim_end_matches('\0').to_owned()
    }
}

impl Drop for Kills {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.library);
        let _ = fs::remove_file(&self.file);
    }
}

/// What a server that may die at any moment is asked for.
struct Act<'a> {
    method: &'a str,
    path: String,
    body: Option<Value>,
}

struct World<'a> {
    data: &'a Data,
    kills: Kills,
    yard: Yard<'a>,
    tenant: String,
    keys: u32,
    /// Whether the devices die with the daemon, as when the power goes.
    power_cut: bool,
    /// Every emulator that ever was.
    made: std::collections::BTreeSet<String>,
}

impl<'a> World<'a> {
    async fn new(data: &'a Data) -> World<'a> {
        let kills = Kills::new(data);
        let yard = Yard::open_as(data, &[], &kills.environment());
        let tenant = yard.tenant("acme").await;
        World { data, kills, yard, tenant, keys: 0, power_cut: false, made: Default::default() }
    }

    fn kill_devices(&self, text: &str) {
        for process in self.data.processes(text) {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-9", &process]).output().expect("kill");
        }
    }

    fn is_dead(&mut self) -> bool {
        self.yard.daemon.child.try_wait().expect("a child").is_some()
    }

    fn revive(&mut self) {
        self.kills.disarm();
        let _ = self.yard.daemon.child.kill();
        let _ = self.yard.daemon.child.wait();
        if self.power_cut {
            self.kill_devices("");
        }
        self.yard = Yard::open_as(self.data, &[], &self.kills.environment());
    }

    /// Asks a daemon that has so many steps to live, and asks again once it is revived. Gives the last answer, and whether it was killed
    /// before `is_done`.
    async fn ask(&mut self, steps: i64, act: &Act<'_>, is_done: &str) -> (Value, bool) {
        self.keys += 1;
        let key = format!("key-{}", self.keys);
        let (body, key) = (act.body.as_ref(), (act.method == "POST").then_some(key.as_str()));
        self.kills.arm(steps);
        let first = self.yard.ask(act.method, &act.path, body, key).await;
        if let Some((status, answer)) = &first {
            assert!((200..300).contains(status), "{status} {answer}");
            let id = answer["id"].as_str().expect("an id").to_owned();
            let started = Instant::now();
            while !self.is_dead() {
                let path = format!("{EMULATORS}/{id}/status");
                let seen = self.yard.ask("GET", &path, None, None).await;
                if seen.as_ref().is_some_and(|(_, seen)| seen["status"] == is_done) {
                    // What is recorded of its end may still be under way.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    if !self.is_dead() {
                        self.kills.disarm();
                        return (answer.clone(), false);
                    }
                }
                assert!(started.elapsed() < Duration::from_secs(90), "{seen:?} and not {is_done}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.revive();
        let again = self.yard.ask(act.method, &act.path, body, key).await;
        let (status, answer) = again.expect("an answer");
        assert!((200..300).contains(&status), "{status} {answer}");
        if let Some((_, first)) = first {
            // What was acknowledged is there.
            assert_eq!((&first["id"], &first["incarnation"]), (&answer["id"], &answer["incarnation"]));
        }
        (answer, true)
    }

    /// The device's process is there, alone, and of the right incarnation. It need not be up: what follows is a boot like any other.
    async fn runs(&self, id: &str, incarnation: i64, is_up: bool) {
        let started = Instant::now();
        loop {
            let seen = self.yard.call("GET", &format!("{EMULATORS}/{id}/status"), None).await;
            let status = seen["status"].as_str().unwrap_or_default();
            let up = status == "running" || !is_up && matches!(status, "provisioning" | "restarting");
            let processes = self.data.processes(&format!("{id}\\.{incarnation} "));
            if up && seen["incarnation"] == incarnation && processes.len() == 1 {
                assert_eq!(self.data.processes(""), processes, "{}", self.kills.last());
                return;
            }
            let late = started.elapsed() > Duration::from_secs(90);
            assert!(!late && status != "failed", "{seen}, {processes:?}, {}", self.kills.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A device that had begun to run has failed with the power; one that had not, runs.
    async fn runs_or_failed(&self, id: &str) {
        let started = Instant::now();
        loop {
            let seen = self.yard.call("GET", &format!("{EMULATORS}/{id}/status"), None).await;
            let runs = self.data.processes(id).len() == 1;
            match (seen["status"].as_str(), seen["statusReason"]["code"].as_str()) {
                (Some("failed"), Some("lost")) => return,
                (Some("provisioning" | "running"), _) if runs => return,
                _ => {}
            }
            assert!(started.elapsed() < Duration::from_secs(90), "{seen}, {}", self.kills.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn is_clean(&self) {
        let left = self.yard.call("GET", EMULATORS, None).await;
        assert_eq!(left["items"], json!([]), "{}", self.kills.last());
        assert!(self.data.processes("").is_empty(), "{}", self.kills.last());
        assert_eq!(self.data.leftovers(), [] as [PathBuf; 0], "{}", self.kills.last());
        let told = self.yard.sound();
        let addresses = format!("0 addresses are in use, {} have been given back.", self.made.len());
        assert!(told.contains(&addresses), "{told}, not {addresses}, {}", self.kills.last());
    }
}

fn deploy(tenant: &str) -> Act<'static> {
    let body = Some(json!({ "tenantId": tenant, "deviceType": "phone" }));
    Act { method: "POST", path: EMULATORS.to_owned(), body }
}

fn delete(id: &str) -> Act<'static> {
    Act { method: "DELETE", path: format!("{EMULATORS}/{id}"), body: None }
}

fn restart(id: &str) -> Act<'static> {
    Act { method: "POST", path: format!("{EMULATORS}/{id}/restart"), body: None }
}

#[tokio::test]
async fn deploying_and_deleting_survive_a_kill_at_every_step() {
    let data = Data::new();
    let mut world = World::new(&data).await;
    let (mut deploying, mut deleting, mut kills) = (true, true, 0);
    let mut steps = 0;
    let begun = Instant::now();
    while deploying || deleting {
        steps += 1;
        world.power_cut = steps % 4 == 3;
        let act = deploy(&world.tenant);
        let (made, killed) = world.ask(if deploying { steps } else { i64::MAX }, &act, "running").await;
        kills += u32::from(killed);
        if deploying && !killed {
            println!("a deploy has {} steps", steps - 1);
            deploying = false;
        }
        let id = made["id"].as_str().expect("an id").to_owned();
        world.made.insert(id.clone());
        if killed && world.power_cut {
            world.runs_or_failed(&id).await;
        } else {
            world.runs(&id, 1, steps % 16 == 0).await;
        }
        let listed = world.yard.call("GET", EMULATORS, None).await;
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{}", world.kills.last());
        let (_, killed) =
            world.ask(if deleting { steps } else { i64::MAX }, &delete(&id), "terminated").await;
        kills += u32::from(killed);
        if deleting && !killed {
            println!("a delete has {} steps", steps - 1);
            deleting = false;
        }
        world.yard.until(&id, "terminated").await;
        world.is_clean().await;
    }
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn restarting_survives_a_kill_of_the_daemon_at_every_step_and_of_the_device_besides() {
    let data = Data::new();
    let mut world = World::new(&data).await;
    let (made, _) = world.ask(i64::MAX, &deploy(&world.tenant), "running").await;
    let id = made["id"].as_str().expect("an id").to_owned();
    world.made.insert(id.clone());
    let mut kills = 0;
    for steps in 1.. {
        // In most rounds the device is killed before it is up: then the restart has nothing to stop.
        if steps % 8 != 0 {
            world.kill_devices(&id);
            world.yard.until(&id, "failed").await;
        }
        let (answer, killed) = world.ask(steps, &restart(&id), "running").await;
        assert_eq!(answer["incarnation"], steps + 1, "{}", world.kills.last());
        world.runs(&id, steps + 1, (steps + 1) % 8 == 0).await;
        if !killed {
            println!("a restart has {} steps", steps - 1);
            break;
        }
        kills += 1;
    }
    world.yard.sound();
    world.ask(i64::MAX, &delete(&id), "terminated").await;
    world.is_clean().await;
    println!("{kills} kills");
}
