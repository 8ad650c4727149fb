//! Settings in the namespaces system, secure and global, kept over a restart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::files::replace_file;

type Values = BTreeMap<String, BTreeMap<String, String>>;

pub const NAMESPACES: [&str; 3] = ["system", "secure", "global"];
const MAX_TEXT: usize = 4096;
const MAX_COUNT: usize = 1024;

pub struct Settings {
    values: Mutex<Values>,
    kept: PathBuf,
}

impl Settings {
    pub fn load(root: &Path) -> Settings {
        let kept = root.join("data/system/settings.json");
        let values =
            fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Settings { values: Mutex::new(values), kept }
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.lock().get(namespace)?.get(key).cloned()
    }

    pub fn all(&self, namespace: &str) -> BTreeMap<String, String> {
        self.lock().get(namespace).cloned().unwrap_or_default()
    }

    /// Sets a value, or removes it.
    pub fn set(&self, namespace: &str, key: &str, value: Option<&str>) -> Result<(), String> {
        if key.is_empty() || key.len() > MAX_TEXT || value.is_some_and(|value| value.len() > MAX_TEXT) {
            return Err(format!("a setting's name and value have at most {MAX_TEXT} bytes"));
        }
        let mut values = self.lock();
        let space = values.entry(namespace.to_owned()).or_default();
        match value {
            Some(_) if space.len() >= MAX_COUNT && !space.contains_key(key) => {
                return Err("there are too many settings".to_owned());
            }
            Some(value) => drop(space.insert(key.to_owned(), value.to_owned())),
            None => drop(space.remove(key)),
        }
        let text = serde_json::to_vec(&*values).map_err(|error| error.to_string())?;
        replace_file(&self.kept, &text).map_err(|error| format!("cannot keep the setting: {error}"))
    }
}
