//! `getprop`, `setprop`, `settings`, `wm`, `dumpsys` and `screencap`: what the device is and shows.

use std::fs;

use super::{Answer, Call, Outcome, Words, path_from};
use crate::device::Device;
use crate::packages::Packages;
use crate::settings::NAMESPACES;
use crate::{health, screen};

pub fn getprop(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    match args {
        [] => {
            let lines =
                device.properties.all().into_iter().map(|(name, value)| format!("[{name}]: [{value}]\n"));
            to.say(&lines.collect::<String>())?;
        }
        [name] => to.say(&format!("{}\n", device.properties.get(name)))?,
        [name, otherwise, ..] => {
            let value = device.properties.get(name);
            to.say(&format!("{}\n", if value.is_empty() { *otherwise } else { &value }))?;
        }
    }
    Ok(0)
}

pub fn setprop(device: &Device, args: &[&str]) -> Outcome {
    let [name, value] = args else {
        return Err("usage: setprop NAME VALUE".into());
    };
    device.properties.set(name, value)?;
    Ok(0)
}

pub fn settings(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    let words = Words::parse(args, &["--user"])?;
    let usage = "usage: settings get|put|delete|list system|secure|global [KEY] [VALUE]";
    let [verb, namespace, rest @ ..] = words.words.as_slice() else {
        return Err(usage.into());
    };
    if !NAMESPACES.contains(namespace) {
        return Err(format!("Unknown namespace '{namespace}'. {usage}").into());
    }
    let is_android_id = |key: &str| *namespace == "secure" && key == "android_id";
    match (*verb, rest) {
        ("get", [key]) => {
            let value = if is_android_id(key) {
                Some(device.identity().android_id)
            } else {
                device.settings.get(namespace, key)
            };
            to.say(&format!("{}\n", value.as_deref().unwrap_or("null")))?;
        }
        ("put" | "delete", [key, ..]) if is_android_id(key) => {
            return Err("android_id is given by the host".into());
        }
        ("put", [key, value, ..]) => device.settings.set(namespace, key, Some(value))?,
        ("delete", [key]) => {
            let count = usize::from(device.settings.get(namespace, key).is_some());
            device.settings.set(namespace, key, None)?;
            to.say(&format!("Deleted {count} rows\n"))?;
        }
        ("list", []) => {
            let mut all = device.settings.all(namespace);
            if *namespace == "secure" {
                all.insert("android_id".to_owned(), device.identity().android_id);
            }
            to.say(&all.into_iter().map(|(key, value)| format!("{key}={value}\n")).collect::<String>())?;
        }
        _ => return Err(usage.into()),
    }
    Ok(0)
}

pub fn wm(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    match args {
        ["size"] => {
            let (width, height) = screen::size(device);
            to.say(&format!("Physical size: {width}x{height}\n"))?;
        }
        ["density"] => {
            to.say(&format!("Physical density: {}\n", device.properties.get("ro.sf.lcd_density")))?;
        }
        _ => return Err("usage: wm size|density; the screen of this device cannot be changed".into()),
    }
    Ok(0)
}

pub fn dumpsys(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    let front =
        device.activities.front().map_or("org.paddock.home/.Home".to_owned(), |component| component.short());
    let text = match args {
        ["-l"] => "Currently running services:\n  activity\n  battery\n  meminfo\n  package\n  window\n".to_owned(),
        ["activity", ..] => format!("ACTIVITY MANAGER ACTIVITIES\n  mResumedActivity: ActivityRecord{{u0 {front}}}\n"),
        ["window", ..] => format!("WINDOW MANAGER WINDOWS\n  mCurrentFocus=Window{{u0 {front}}}\n"),
        ["battery", ..] => "Current Battery Service state:\n  AC powered: true\n  status: 5\n  health: 2\n  present: true\n  level: 100\n  scale: 100\n".to_owned(),
        ["meminfo", ..] => {
            let memory = health::memory();
            format!("Total RAM: {}K\n Free RAM: {}K\n", memory.total / 1024, memory.available / 1024)
        }
        ["package"] => device.packages.installed().into_keys().chain(Packages::system().map(str::to_owned)).map(|name| format!("  Package [{name}]\n")).collect(),
        ["package", name, ..] => match device.packages.find(name) {
            Some(package) => format!(
                "Packages:\n  Package [{name}]:\n    codePath={}\n    versionCode={} minSdk=1\n    versionName={}\n",
                package.path, package.version_code, package.version_name
            ),
            None => format!("Unable to find package: {name}\n"),
        },
        [] => return Err("name a service; dumpsys -l lists them".into()),
        [service, ..] => return Err(format!("Can't find service: {service}").into()),
    };
    to.say(&text)?;
    Ok(0)
}

/// To the output, or to a file; PNG when asked for or when the file's name says so.
pub fn screencap(device: &Device, call: &Call, args: &[&str], to: &mut Answer) -> Outcome {
    let words = Words::parse(args, &["-d"])?;
    let file = words.words.first();
    let as_png = words.has("-p") || file.is_some_and(|name| name.ends_with(".png"));
    let canvas = screen::draw(device);
    let mut bytes = Vec::new();
    let written =
        if as_png { screen::write_png(&canvas, &mut bytes) } else { screen::write_raw(&canvas, &mut bytes) };
    written.map_err(|error| format!("cannot encode the picture: {error}"))?;
    match file {
        Some(name) => {
            let path = path_from(device, &call.folder, name);
            fs::write(path, bytes).map_err(|error| format!("cannot write {name}: {error}"))?;
        }
        None => to.bytes(&bytes)?,
    }
    Ok(0)
}
