//! Images in keeping: kernel, initramfs and shared disks, copied so that a rebuilt image disturbs no device.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use paddock_model::devices::Image;
use paddock_model::drivers::{DriverError, DriverResult, Retry};

use crate::durable::{self, io_error, sync_folder};
use crate::emulator_hosts::profile::{FILE_NAME, Profile};

/// The image's files in `images/<name>-<digest>/`. Whoever finds that folder finds all of them: it gets its name last.
pub fn ensure(images: &Path, profile: &Path) -> DriverResult<Image> {
    let failed = |error| io_error(&format!("take the image of {} into keeping", profile.display()), error);
    let text = match fs::read(profile) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("there is no profile {}", profile.display());
            return Err(DriverError::new(Retry::Later, "image_missing", message).with_cause(error));
        }
        text => text.map_err(failed)?,
    };
    let parsed = parse(&text, profile)?;
    let source = profile.parent().unwrap_or(Path::new("."));
    let mut facts = text.clone();
    for name in parsed.files() {
        let file = match File::open(source.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("{} names {name}, which is not beside it", profile.display());
                return Err(DriverError::new(Retry::Later, "image_missing", message).with_cause(error));
            }
            file => file.map_err(failed)?,
        };
        facts.extend_from_slice(durable::digest(file).map_err(failed)?.as_bytes());
    }
    let digest = durable::digest(facts.as_slice()).map_err(failed)?;
    let name = format!("{}-{}", parsed.name, &digest[..12]);
    let folder = images.join(&name);
    if !folder.exists() {
        let prepared = images.join(format!(".{name}.tmp"));
        let taken = copy(&parsed, &text, source, &prepared).and_then(|()| {
            fs::rename(&prepared, &folder)?;
            sync_folder(images)
        });
        taken.inspect_err(|_| drop(fs::remove_dir_all(&prepared))).map_err(failed)?;
    }
    // Its own disk is for a pool to copy; it is not kept twice.
    Ok(parsed.image(name, source))
}

fn copy(profile: &Profile, text: &[u8], source: &Path, prepared: &Path) -> io::Result<()> {
    let _ = fs::remove_dir_all(prepared);
    fs::create_dir(prepared)?;
    for name in profile.files() {
        let mut copy = File::create(prepared.join(name))?;
        let mut original = File::open(source.join(name))?;
        if rustix::fs::ioctl_ficlone(&copy, &original).is_err() {
            io::copy(&mut original, &mut copy)?;
        }
        copy.sync_all()?;
    }
    durable::write(&prepared.join(FILE_NAME), text, 0o444)
}

pub fn find(images: &Path, name: &str) -> DriverResult<(PathBuf, Profile)> {
    let folder = images.join(name);
    let text = fs::read(folder.join(FILE_NAME)).map_err(|error| {
        DriverError::new(Retry::Later, "image_missing", format!("this host has no image {name}"))
            .with_cause(error)
    })?;
    let profile = parse(&text, &folder)?;
    Ok((folder, profile))
}

fn parse(text: &[u8], path: &Path) -> DriverResult<Profile> {
    Profile::parse(text).map_err(|error| {
        let message = format!("{} is no profile that can be used: {error}", path.display());
        DriverError::new(Retry::Never, "image_refused", message)
    })
}

/// Removes what an earlier process left unfinished.
pub fn sweep(images: &Path) -> io::Result<()> {
    for entry in fs::read_dir(images)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') && name.ends_with(".tmp") {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
