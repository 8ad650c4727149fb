//! System properties: names and values as `getprop` shows them, some fixed, some kept over a restart.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::files::replace_file;

const MAX_NAME: usize = 128;
const MAX_VALUE: usize = 1024;
const MAX_COUNT: usize = 4096;

pub struct Properties {
    state: Mutex<State>,
    changed: Condvar,
    /// Where `persist.` properties are kept.
    kept: PathBuf,
}

#[derive(Default)]
struct State {
    values: BTreeMap<String, String>,
    version: u64,
}

impl Properties {
    /// Starts with what the build says and what was kept before.
    pub fn load(build: &str, kept: PathBuf) -> Properties {
        let before = fs::read_to_string(&kept).unwrap_or_default();
        let persistent = parse(&before).filter(|(name, _)| name.starts_with("persist."));
        let values = parse(build).chain(persistent).collect();
        Properties { state: Mutex::new(State { values, version: 1 }), changed: Condvar::new(), kept }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, or nothing at all for a property that is not set.
    pub fn get(&self, name: &str) -> String {
        self.lock().values.get(name).cloned().unwrap_or_default()
    }

    pub fn all(&self) -> BTreeMap<String, String> {
        self.lock().values.clone()
    }

    /// Sets as a user does: `ro.` properties are set once, and the rest within bounds.
    pub fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let legal = |letter: char| letter.is_ascii_alphanumeric() || "._-@:".contains(letter);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
            return Err(format!("'{name}' is no name of a property: use letters, digits and ._-@:"));
        }
        if value.len() > MAX_VALUE || value.contains('\n') {
            return Err(format!(
                "the value of '{name}' is longer than {MAX_VALUE} bytes or has several lines"
            ));
        }
        let mut state = self.lock();
        let known = state.values.contains_key(name);
        if known && name.starts_with("ro.") {
            return Err(format!("'{name}' is read-only and already set"));
        }
        if !known && state.values.len() >= MAX_COUNT {
            return Err("there are too many properties".to_owned());
        }
        change(&mut state, name, value);
        self.changed.notify_all();
        let kept = name.starts_with("persist.").then(|| {
            let lines = state.values.iter().filter(|(name, _)| name.starts_with("persist."));
            lines.map(|(name, value)| format!("{name}={value}\n")).collect::<String>()
        });
        drop(state);
        match kept {
            Some(text) => replace_file(&self.kept, text.as_bytes())
                .map_err(|error| format!("cannot keep '{name}': {error}")),
            None => Ok(()),
        }
    }

    /// Sets as the device itself does, read-only or not.
    pub fn assign(&self, name: &str, value: &str) {
        change(&mut self.lock(), name, value);
        self.changed.notify_all();
    }

    /// Forgets the others.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        let mut state = self.lock();
        let before = state.values.len();
        state.values.retain(|name, _| keep(name));
        if state.values.len() < before {
            state.version += 1;
            self.changed.notify_all();
        }
    }

    /// Waits until something has changed since `version`, or the time is over; says which version is now.
    pub fn wait(&self, version: u64, at_most: Duration) -> u64 {
        let unchanged = |state: &mut State| state.version == version;
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, unchanged);
        waited.unwrap_or_else(PoisonError::into_inner).0.version
    }

    /// Wakes whoever waits, although no property has changed.
    pub fn nudge(&self) {
        self.lock().version += 1;
        self.changed.notify_all();
    }
}

fn change(state: &mut State, name: &str, value: &str) {
    if state.values.get(name).is_none_or(|old| old != value) {
        state.values.insert(name.to_owned(), value.to_owned());
        state.version += 1;
    }
}

fn parse(text: &str) -> impl Iterator<Item = (String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::Properties;

    #[test]
    fn a_user_sets_what_is_not_read_only_and_within_bounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let properties =
            Properties::load("ro.serialno=one\n# a comment\nbroken\n", folder.path().join("kept"));
        for (name, value, allowed) in [
            ("debug.a", "1", true),
            ("ro.new", "1", true),
            ("ro.new", "2", false),
            ("ro.serialno", "two", false),
            ("", "1", false),
            ("with space", "1", false),
            ("a", "two\nlines", false),
        ] {
            assert_eq!(properties.set(name, value).is_ok(), allowed, "{name}={value}");
        }
        assert_eq!(properties.get("ro.serialno"), "one");
        assert_eq!(properties.get("absent"), "");
    }

    #[test]
    fn only_persistent_properties_outlive_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = folder.path().join("property/kept");
        let before = Properties::load("", kept.clone());
        before.set("persist.a", "1").expect("set");
        before.set("debug.a", "1").expect("set");

        let after = Properties::load("", kept);

        assert_eq!((after.get("persist.a"), after.get("debug.a")), ("1".to_owned(), String::new()));
    }
}
