//! A real SpiceDB in a process of its own, which is asked by lines of JSON and ends with its owner.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const SCRIPT: &str = include_str!("spicedb.mjs");
/// Far longer than anything takes; a SpiceDB that hangs is an error and not a test without end.
const PATIENCE: Duration = Duration::from_secs(300);
/// To end by itself.
const FAREWELL: Duration = Duration::from_secs(5);
/// As many calls can be under way at once.
const THREADS: &str = "32";

pub struct SpiceDb {
    process: Child,
    /// Closed to let it end.
    wishes: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl SpiceDb {
    /// Empty but for its schema.
    pub fn start(schema: &str) -> Result<Self, String> {
        let folder = installed()?;
        let mut process = Command::new("node")
            .args(["--input-type=module", "--eval", SCRIPT, "--"])
            .arg(&folder)
            .env("UV_THREADPOOL_SIZE", THREADS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("node does not start ({error}); run `scripts/setup test`"))?;
        let wishes = process.stdin.take();
        let output = process.stdout.take().ok_or("node has no stdout")?;
        let (heard, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if heard.send(line).is_err() {
                    return;
                }
            }
        });
        let mut spicedb = SpiceDb { process, wishes, answers };
        spicedb.ask(&json!({ "wish": "start", "schema": schema }))?;
        Ok(spicedb)
    }

    /// Gives and takes back, as `type:id#relation@type:id`.
    pub fn change(&mut self, given: &[String], taken: &[String]) -> Result<(), String> {
        self.ask(&json!({ "wish": "change", "given": given, "taken": taken })).map(|_| ())
    }

    /// Which of the relations hold at this moment, in the order of the questions.
    pub fn check(&mut self, questions: &[String]) -> Result<Vec<bool>, String> {
        let mut answer = self.ask(&json!({ "wish": "check", "questions": questions }))?;
        serde_json::from_value(answer["held"].take()).map_err(|error| error.to_string())
    }

    pub fn ask(&mut self, wish: &Value) -> Result<Value, String> {
        let wishes = self.wishes.as_mut().ok_or("SpiceDB has no stdin")?;
        writeln!(wishes, "{wish}").map_err(|error| format!("SpiceDB has ended: {error}"))?;
        let answer = self.answers.recv_timeout(PATIENCE);
        let answer = answer.map_err(|error| format!("SpiceDB does not answer: {error}"))?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))?;
        match answer["error"].as_str() {
            Some(error) => Err(format!("SpiceDB says: {error}")),
            None => Ok(answer),
        }
    }
}

impl Drop for SpiceDb {
    fn drop(&mut self) {
        // By itself it removes its socket; what matters is that it is gone and reaped.
        drop(self.wishes.take());
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where `scripts/setup` has put it.
fn installed() -> Result<PathBuf, String> {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/paddock"));
    let folder = cache.or_else(home).ok_or("neither CACHE nor HOME is set")?.join("tools/npm-spicedb");
    if folder.join("installed").exists() {
        return Ok(folder);
    }
    Err(format!("there is no SpiceDB in {}; run `scripts/setup test`", folder.display()))
}
