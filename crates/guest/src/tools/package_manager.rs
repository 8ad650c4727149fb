//! `pm`: installing, listing and removing packages.

use std::fs::File;
use std::io::Read;

use super::{Answer, Call, Outcome, Words, path_from};
use crate::device::Device;
use crate::packages::Packages;

pub fn pm(device: &Device, call: &Call, args: &[&str], from: &mut impl Read, to: &mut Answer) -> Outcome {
    match args {
        ["install", rest @ ..] => install(device, call, rest, from, to),
        ["uninstall", rest @ ..] => uninstall(device, rest, to),
        ["list", "packages", rest @ ..] => list(device, rest, to),
        ["list", "features"] => Ok(to.say(features(device)).map(|()| 0)?),
        ["list", "users"] => Ok(to.say("Users:\n\tUserInfo{0:Owner:c13} running\n").map(|()| 0)?),
        ["path", rest @ ..] => {
            let words = Words::parse(rest, &["--user"])?;
            let package = words.words.first().and_then(|name| device.packages.find(name));
            match package {
                Some(package) => Ok(to.say(&format!("package:{}\n", package.path)).map(|()| 0)?),
                None => Ok(1),
            }
        }
        ["clear", rest @ ..] => {
            let words = Words::parse(rest, &["--user"])?;
            let name = words.words.first().filter(|name| device.packages.installed().contains_key(**name));
            let Some(name) = name else {
                to.say("Failed\n")?;
                return Ok(1);
            };
            device.activities.stop(name);
            let _ = std::fs::remove_dir_all(device.path(&format!("/data/data/{name}")));
            to.say("Success\n")?;
            Ok(0)
        }
        _ => Err("usage: pm install [-r] FILE | install -S BYTES | uninstall PACKAGE | list packages [-f] [-3] [-s] [FILTER] | path PACKAGE | clear PACKAGE".into()),
    }
}

fn features(device: &Device) -> &'static str {
    if device.properties.get("ro.build.characteristics").contains("automotive") {
        "feature:android.hardware.type.automotive\n"
    } else {
        "feature:android.hardware.touchscreen\n"
    }
}

fn install(device: &Device, call: &Call, args: &[&str], from: &mut impl Read, to: &mut Answer) -> Outcome {
    let words = Words::parse(
        args,
        &["-S", "-i", "--user", "--abi", "--install-location", "--pkg", "--originating-uri"],
    )?;
    let now = device.clock().as_secs();
    // Android 14's installer replaces with or without -r; so does ours.
    let installed = match (words.options.get("-S"), words.words.first()) {
        (Some(length), None | Some(&"-")) => {
            let length = length.parse().map_err(|_| format!("-S wants a number of bytes, not '{length}'"))?;
            device.packages.install(from, length, true, now)
        }
        (_, Some(path)) => {
            let file = File::open(path_from(device, &call.folder, path));
            let opened = file.and_then(|file| Ok((file.metadata()?.len(), file)));
            match opened {
                Ok((length, mut file)) => device.packages.install(&mut file, length, true, now),
                Err(error) => Err(anyhow::anyhow!("INSTALL_FAILED_INVALID_URI: cannot open {path}: {error}")),
            }
        }
        (None, None) => return Err("name a file, or give -S and the package on the input".into()),
    };
    match installed {
        Ok(name) => {
            device.log.info("PackageManager", &format!("installed {name}"));
            device.properties.nudge();
            to.say("Success\n")?;
            Ok(0)
        }
        Err(error) => {
            device.log.warn("PackageManager", &format!("{error:#}"));
            to.say(&format!("Failure [{error:#}]\n"))?;
            Ok(1)
        }
    }
}

fn uninstall(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    let words = Words::parse(args, &["--user", "--versionCode"])?;
    let name = words.words.first().ok_or("name a package")?;
    match device.packages.uninstall(name) {
        Ok(true) => {
            device.activities.stop(name);
            device.log.info("PackageManager", &format!("uninstalled {name}"));
            device.properties.nudge();
            to.say("Success\n")?;
            Ok(0)
        }
        Ok(false) => {
            to.say("Failure [DELETE_FAILED_INTERNAL_ERROR: not installed]\n")?;
            Ok(1)
        }
        Err(error) => {
            to.say(&format!("Failure [{error:#}]\n"))?;
            Ok(1)
        }
    }
}

fn list(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    let words = Words::parse(args, &["--user", "-i", "-U"])?;
    let mut names: Vec<String> = Vec::new();
    if !words.has("-3") {
        names.extend(Packages::system().map(str::to_owned));
    }
    if !words.has("-s") {
        names.extend(device.packages.installed().into_keys());
    }
    names.sort();
    let wanted = words.words.first().copied().unwrap_or("");
    for name in names.iter().filter(|name| name.contains(wanted)) {
        let Some(package) = device.packages.find(name) else { continue };
        let file = if words.has("-f") { format!("{}=", package.path) } else { String::new() };
        let version = if words.has("--show-versioncode") {
            format!(" versionCode:{}", package.version_code)
        } else {
            String::new()
        };
        to.say(&format!("package:{file}{name}{version}\n"))?;
    }
    Ok(0)
}
