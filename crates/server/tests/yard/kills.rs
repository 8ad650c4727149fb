//! A server that is killed at a step of its work, alone or with its devices, and started again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Data, Yard, is_long};

pub const EMULATORS: &str = "/api/v1/emulators";
pub const SNAPSHOTS: &str = "/api/v1/snapshots";

/// How long anything may take until it is as it should be.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Kills a daemon at a step; see `kills.c`, which shares the file with us.
pub struct Kills {
    library: PathBuf,
    file: PathBuf,
    /// Whether every word to QEMU is a step.
    pub talk: bool,
}

impl Kills {
    const FROM: usize = 32;
    const LAST: usize = 64;

    pub fn new(data: &Data) -> Kills {
        let library = data.path().with_extension("so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kills.c");
        let made =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", source, "-ldl", "-o"]).arg(&library).output();
        let made = made.expect("a C compiler");
        assert!(made.status.success(), "{made:?}");
        let file = data.path().with_extension("kills");
        fs::write(&file, [0; 256]).expect("a file");
        Kills { library, file, talk: false }
    }

    pub fn environment(&self) -> [(&str, &str); 2] {
        let [library, file] = [&self.library, &self.file].map(|path| path.to_str().expect("text"));
        [("LD_PRELOAD", library), ("KILLS", file)]
    }

    fn write(&self, left: i64, victim: i64, from: &str) {
        let file = File::options().write(true).open(&self.file).expect("the file");
        let words = [0, i64::from(is_long()) + 2 * i64::from(self.talk), victim];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(from.bytes());
        bytes.resize(Self::LAST - 8, 0);
        assert!(from.len() < Self::LAST - Self::FROM);
        // What is left comes last: from then on it counts.
        file.write_all_at(&0i64.to_ne_bytes(), 0).expect("written");
        file.write_all_at(&bytes, 8).expect("written");
        file.write_all_at(&left.to_ne_bytes(), 0).expect("written");
    }

    /// From now on the daemon has so many steps to live.
    pub fn arm(&self, steps: i64) {
        assert!(steps > 0);
        self.write(steps, 0, "");
    }

    /// The same, from the first step on something that has this in its name.
    pub fn arm_from(&self, from: &str, steps: i64) {
        assert!(steps > 0);
        self.write(steps, 0, from);
    }

    /// After so many steps of the daemon this process dies; the daemon lives.
    pub fn arm_for(&self, victim: &str, steps: i64) {
        self.write(steps, victim.parse().expect("a pid"), "");
    }

    /// How many steps there were, and it goes on living.
    pub fn disarm(&self) -> i64 {
        let bytes = fs::read(&self.file).expect("the file");
        self.write(0, 0, "");
        i64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"))
    }

    pub fn last(&self) -> String {
        let bytes = fs::read(&self.file).expect("the file");
        String::from_utf8_lossy(&bytes[Self::LAST..]).trim_end_matches('\0').to_owned()
    }
}

impl Drop for Kills {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.library);
        let _ = fs::remove_file(&self.file);
    }
}

/// What a server that may die at any moment is asked for.
pub struct Act<'a> {
    pub method: &'a str,
    pub path: String,
    pub body: Option<Value>,
}

/// How one sees that an act is over.
#[derive(Clone, Copy)]
pub enum Until<'a> {
    /// The emulator that was answered has this status.
    Status(&'a str),
    /// The snapshot is in one of these states; `gone` is one, too.
    State(&'a str, &'a [&'a str]),
    /// The snapshot was proved at another time than this.
    Proved(&'a str, &'a Value),
    /// The snapshot is gone, and so is every layer that nothing stands on.
    Purged(&'a str),
    /// Another device than this one runs: the clone that is to prove a snapshot.
    Trial(&'a str),
}

/// Which devices die with the daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Casualties {
    None,
    /// As when the power goes.
    All,
}

pub struct World<'a> {
    pub data: &'a Data,
    pub kills: Kills,
    pub yard: Yard<'a>,
    pub tenant: String,
    keys: u32,
    flags: Vec<&'a str>,
    pub casualties: Casualties,
    /// Every emulator that ever was.
    pub made: BTreeSet<String>,
}

impl<'a> World<'a> {
    pub async fn new(data: &'a Data, flags: &[&'a str]) -> World<'a> {
        let kills = Kills::new(data);
        let yard = Yard::open_as(data, flags, &kills.environment());
        let tenant = yard.tenant("acme").await;
        let flags = flags.to_vec();
        World {
            data,
            kills,
            yard,
            tenant,
            keys: 0,
            flags,
            casualties: Casualties::None,
            made: BTreeSet::new(),
        }
    }

    pub fn kill_devices(&self, text: &str) {
        for process in self.data.processes(text) {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-9", &process]).output().expect("kill");
        }
    }

    pub fn is_dead(&mut self) -> bool {
        self.yard.daemon.child.try_wait().expect("a child").is_some()
    }

    pub fn revive(&mut self) {
        let flags = self.flags.clone();
        self.revive_with(&flags);
    }

    /// Kills it, if it is not dead yet, and starts it with these flags from now on.
    pub fn revive_with(&mut self, flags: &[&'a str]) {
        self.kills.disarm();
        let _ = self.yard.daemon.child.kill();
        let _ = self.yard.daemon.child.wait();
        if self.casualties == Casualties::All {
            self.kill_devices("");
        }
        self.flags = flags.to_vec();
        self.yard = Yard::open_as(self.data, flags, &self.kills.environment());
    }

    /// Whether the server says that an act is over; it may be dead.
    async fn is_over(&self, answer: &Value, until: Until<'_>) -> (bool, Option<(u16, Value)>) {
        let path = match until {
            Until::Trial(device) => {
                let own = self.data.processes(device);
                return (self.data.processes("").iter().any(|process| !own.contains(process)), None);
            }
            Until::Status(_) => format!("{EMULATORS}/{}/status", answer["id"].as_str().expect("an id")),
            Until::State(name, _) | Until::Proved(name, _) | Until::Purged(name) => {
                format!("{SNAPSHOTS}/{name}")
            }
        };
        let seen = self.yard.ask("GET", &path, None, None).await;
        if matches!(until, Until::Purged(_)) && seen.as_ref().is_some_and(|(code, _)| *code == 404) {
            let pools = self.yard.ask("GET", &format!("{SNAPSHOTS}/diskpool"), None, None).await;
            let over = |pools: &Value| pools["pools"][0]["reclaimableBytes"] == 0;
            return (pools.as_ref().is_some_and(|(_, pools)| over(pools)), pools);
        }
        let over = seen.as_ref().is_some_and(|(code, seen)| match until {
            Until::Status(status) => seen["status"] == status,
            Until::State(_, states) => {
                states.iter().any(|state| *state == "gone" && *code == 404 || seen["state"] == *state)
            }
            Until::Proved(_, before) => &seen["verifiedBoot"]["at"] != before,
            Until::Trial(_) | Until::Purged(_) => false,
        });
        (over, seen)
    }

    /// Waits until an act that was answered is over, and gives how it looks then; none when the server died first.
    pub async fn watch(&mut self, answer: &Value, until: Until<'_>) -> Option<Value> {
        let started = Instant::now();
        while !self.is_dead() {
            let (over, seen) = self.is_over(answer, until).await;
            if over {
                // What is recorded of its end may still be under way.
                tokio::time::sleep(Duration::from_millis(100)).await;
                if !self.is_dead() {
                    return Some(seen.map_or(Value::Null, |(_, seen)| seen));
                }
            }
            assert!(started.elapsed() < PATIENCE, "{seen:?} and not over, {}", self.kills.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Asks a daemon that has so many steps to live, and asks again once it is revived. Gives the last answer, and whether it was killed
    /// before the act was over.
    pub async fn ask(&mut self, steps: i64, act: &Act<'_>, until: Until<'_>) -> (Value, bool) {
        self.kills.arm(steps);
        self.ask_armed(act, until).await
    }

    /// The same, where it was said before who dies when.
    pub async fn ask_armed(&mut self, act: &Act<'_>, until: Until<'_>) -> (Value, bool) {
        self.keys += 1;
        let key = format!("key-{}", self.keys);
        let (body, key) = (act.body.as_ref(), (act.method == "POST").then_some(key.as_str()));
        let first = self.yard.ask(act.method, &act.path, body, key).await;
        if let Some((status, answer)) = &first {
            assert!((200..300).contains(status), "{status} {answer}, {}", self.kills.last());
            if self.watch(answer, until).await.is_some() {
                self.kills.disarm();
                // It may have taken its last step this moment.
                tokio::time::sleep(Duration::from_millis(300)).await;
                if !self.is_dead() {
                    return (answer.clone(), false);
                }
            }
        }
        self.revive();
        // To be asked for a swap again is to be asked for another one.
        if let Some((_, answer)) = first.as_ref().filter(|_| act.method == "PUT") {
            return (answer.clone(), true);
        }
        let again = self.yard.ask(act.method, &act.path, body, key).await;
        let (status, answer) = again.expect("an answer");
        // What was to go may be gone.
        let gone = act.method == "DELETE" && status == 404 && act.path.starts_with(SNAPSHOTS);
        // Nobody was told that it had begun.
        let begun = act.method == "PUT" && answer["code"] == "invalid_state";
        assert!((200..300).contains(&status) || gone || begun, "{status} {answer}, {}", self.kills.last());
        if let Some((_, first)) = first.filter(|_| !gone) {
            // What was acknowledged is there.
            let facts = |answer: &Value| ["id", "name", "incarnation"].map(|member| answer[member].clone());
            assert_eq!(facts(&first), facts(&answer), "{}", self.kills.last());
        }
        (answer, true)
    }

    /// The device's process is there, alone, and of the right incarnation. It need not be up: what follows is a boot like any other.
    pub async fn runs(&self, id: &str, incarnation: i64, is_up: bool) {
        let started = Instant::now();
        loop {
            let seen = self.yard.call("GET", &format!("{EMULATORS}/{id}/status"), None).await;
            let status = seen["status"].as_str().unwrap_or_default();
            let starts = matches!(status, "provisioning" | "restarting" | "swapping");
            let up = status == "running" || !is_up && starts;
            let processes = self.data.processes(&format!("{id}\\.{incarnation} "));
            if up && seen["incarnation"] == incarnation && processes.len() == 1 {
                assert_eq!(self.data.processes(""), processes, "{}", self.kills.last());
                return;
            }
            let late = started.elapsed() > PATIENCE;
            assert!(!late && status != "failed", "{seen}, {processes:?}, {}", self.kills.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A device that had begun to run has failed with the power; one that had not, runs.
    pub async fn runs_or_failed(&self, id: &str) {
        let started = Instant::now();
        loop {
            let seen = self.yard.call("GET", &format!("{EMULATORS}/{id}/status"), None).await;
            let runs = self.data.processes(id).len() == 1;
            match (seen["status"].as_str(), seen["statusReason"]["code"].as_str()) {
                (Some("failed"), Some("lost")) => return,
                (Some("provisioning" | "running"), _) if runs => return,
                _ => {}
            }
            assert!(started.elapsed() < PATIENCE, "{seen}, {}", self.kills.last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Nothing runs, nothing lies about, and every address that was ever given is free again.
    pub async fn is_clean(&self) {
        let left = self.yard.call("GET", EMULATORS, None).await;
        assert_eq!(left["items"], json!([]), "{}", self.kills.last());
        assert!(self.data.processes("").is_empty(), "{}", self.kills.last());
        assert_eq!(self.data.leftovers(), [] as [PathBuf; 0], "{}", self.kills.last());
        let told = self.yard.sound();
        let given = told.lines().find_map(|line| line.split_once("0 addresses are in use, "));
        let (_, given) = given.unwrap_or_else(|| panic!("{told}, {}", self.kills.last()));
        let number = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("{told}"));
        let words: Vec<&str> = given.trim_end_matches('.').split_whitespace().collect();
        let (free, highest) = (number(words[0]), words.last().and_then(|word| word.parse().ok()));
        let highest: std::net::Ipv4Addr = highest.unwrap_or_else(|| panic!("{told}"));
        let given = u32::from(highest) + 1 - u32::from(self.data.address);
        assert_eq!(free, given, "{told}, {}", self.kills.last());
        assert!(given as usize >= self.made.len(), "{told}");
    }
}

/// Every step for whoever has the time, and otherwise every so-many-th, beginning with another one in each run.
pub fn steps_by(stride: usize) -> impl Iterator<Item = i64> {
    let stride = if is_long() { 1 } else { stride };
    let first = 1 + i64::from(std::process::id()) % stride as i64;
    (first..).step_by(stride)
}

pub fn deploy(tenant: &str) -> Act<'static> {
    let body = Some(json!({ "tenantId": tenant, "deviceType": "phone" }));
    Act { method: "POST", path: EMULATORS.to_owned(), body }
}

pub fn delete(id: &str) -> Act<'static> {
    Act { method: "DELETE", path: format!("{EMULATORS}/{id}"), body: None }
}

pub fn restart(id: &str) -> Act<'static> {
    Act { method: "POST", path: format!("{EMULATORS}/{id}/restart"), body: None }
}
