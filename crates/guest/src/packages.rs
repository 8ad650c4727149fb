//! Installed packages: their files under `/data/app` and the list of them, kept over a restart.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::apk;
use crate::files::replace_file;

/// What every device has and nobody can remove.
const SYSTEM: [&str; 4] = ["android", "com.android.settings", "com.android.shell", "org.paddock.home"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// As the device sees it.
    pub path: String,
    pub version_code: u32,
    pub version_name: String,
    /// Seconds since 1970.
    pub installed_at: u64,
    pub size: u64,
}

pub struct Packages {
    root: PathBuf,
    installed: Mutex<BTreeMap<String, Package>>,
}

impl Packages {
    pub fn load(root: &Path) -> Packages {
        let text = fs::read(root.join("data/system/packages.json")).unwrap_or_default();
        let installed = serde_json::from_slice(&text).unwrap_or_default();
        Packages { root: root.to_owned(), installed: Mutex::new(installed) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Package>> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn installed(&self) -> BTreeMap<String, Package> {
        self.lock().clone()
    }

    pub fn system() -> impl Iterator<Item = &'static str> {
        SYSTEM.into_iter()
    }

    pub fn find(&self, name: &str) -> Option<Package> {
        let installed = self.lock().get(name).cloned();
        installed.or_else(|| {
            SYSTEM.contains(&name).then(|| Package {
                path: format!("/system/priv-app/{name}.apk"),
                version_code: 1,
                version_name: env!("CARGO_PKG_VERSION").to_owned(),
                installed_at: 0,
                size: 0,
            })
        })
    }

    /// Installs what is read, `length` bytes of it; says the package's name.
    /// A failure is put as Android's package manager puts it.
    pub fn install(&self, from: &mut impl Read, length: u64, replace: bool, now: u64) -> Result<String> {
        let folder = self.root.join("data/app");
        fs::create_dir_all(&folder).context("INSTALL_FAILED_INSUFFICIENT_STORAGE: cannot make /data/app")?;
        let incoming = Incoming::new(&folder)?;
        let mut file = File::options().read(true).write(true).create_new(true).open(&incoming.path);
        let file =
            file.as_mut().map_err(|error| anyhow::anyhow!("INSTALL_FAILED_INSUFFICIENT_STORAGE: {error}"))?;
        let copied = io::copy(&mut from.take(length), file)
            .context("INSTALL_FAILED_INSUFFICIENT_STORAGE: cannot write")?;
        if copied < length {
            bail!("INSTALL_FAILED_ABORTED: {copied} of {length} bytes came");
        }
        let manifest = apk::read_manifest(file).map_err(|error| {
            anyhow::anyhow!("INSTALL_PARSE_FAILED_NOT_APK: Failed to parse the APK: {error:#}")
        })?;
        let name = manifest.package;
        if SYSTEM.contains(&name.as_str()) {
            bail!("INSTALL_FAILED_DUPLICATE_PACKAGE: {name} belongs to the system");
        }
        file.sync_all().context("INSTALL_FAILED_INSUFFICIENT_STORAGE: cannot write")?;
        let mut installed = self.lock();
        if installed.contains_key(&name) && !replace {
            bail!("INSTALL_FAILED_ALREADY_EXISTS: Attempt to re-install {name} without first uninstalling.");
        }
        let home = folder.join(&name);
        fs::create_dir_all(&home).context("INSTALL_FAILED_INSUFFICIENT_STORAGE: cannot make the folder")?;
        fs::rename(&incoming.path, home.join("base.apk"))
            .context("INSTALL_FAILED_INTERNAL_ERROR: cannot move")?;
        let package = Package {
            path: format!("/data/app/{name}/base.apk"),
            version_code: manifest.version_code,
            version_name: manifest.version_name,
            installed_at: now,
            size: length,
        };
        installed.insert(name.clone(), package);
        self.keep(&installed).context("INSTALL_FAILED_INTERNAL_ERROR: cannot keep the list")?;
        Ok(name)
    }

    /// Removes a package and its data; says whether it was there.
    pub fn uninstall(&self, name: &str) -> Result<bool> {
        let mut installed = self.lock();
        if installed.remove(name).is_none() {
            return Ok(false);
        }
        self.keep(&installed).context("DELETE_FAILED_INTERNAL_ERROR: cannot keep the list")?;
        for folder in ["data/app", "data/data"] {
            let _ = fs::remove_dir_all(self.root.join(folder).join(name));
        }
        Ok(true)
    }

    fn keep(&self, installed: &BTreeMap<String, Package>) -> io::Result<()> {
        replace_file(&self.root.join("data/system/packages.json"), &serde_json::to_vec_pretty(installed)?)
    }
}

/// A file that is being received; gone unless it was moved away.
struct Incoming {
    path: PathBuf,
}

impl Incoming {
    fn new(folder: &Path) -> Result<Incoming> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(Incoming { path: folder.join(format!(".incoming-{:016x}", u64::from_ne_bytes(random))) })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
