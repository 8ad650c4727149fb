//! `vehicle`: the car's properties as Android may see and set them.

use std::time::Duration;

use super::{Answer, Outcome};
use crate::device::Device;
use crate::vehicle::{
    self, CONTINUOUS, Kind, PropConfig, READ, STATIC, WRITE, find, name_of, number, text_of, value_of,
};

const USAGE: &str = "usage: vehicle list | get NAME [AREA] | set NAME AREA VALUE | watch NAME; names as Android has them, or 0x numbers";
/// How soon it is noticed that whoever watched has left.
const PAUSE: Duration = Duration::from_millis(500);

pub fn vehicle(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    match args {
        ["list"] => list(device, to),
        ["get", name] => get(device, property(name)?, None, to),
        ["get", name, area] => get(device, property(name)?, Some(area_of(area)?), to),
        ["set", name, area, value] => {
            let value = value_of(property(name)?, area_of(area)?, value)?;
            device.vehicle.set(value)?;
            Ok(0)
        }
        ["watch", name] => watch(device, property(name)?, to),
        _ => Err(USAGE.into()),
    }
}

fn property(name: &str) -> Result<i32, String> {
    find(name).ok_or_else(|| format!("INVALID_ARG: no property '{name}'; `vehicle list` names them"))
}

fn area_of(text: &str) -> Result<i32, String> {
    number(text).ok_or_else(|| format!("'{text}' is no area: a number, such as 0 or 0x31"))
}

fn areas_of(device: &Device, prop: i32) -> Result<Vec<i32>, String> {
    let areas = device.vehicle.read(|known| known.configs.get(&prop).map(PropConfig::areas));
    areas.ok_or_else(|| match device.vehicle.link() {
        vehicle::Link::Connected => format!("INVALID_ARG: the car has no {}", name_of(prop)),
        _ => "the car is not connected".to_owned(),
    })
}

fn list(device: &Device, to: &mut Answer) -> Outcome {
    let lines = device.vehicle.read(|known| {
        let line = |config: &PropConfig| {
            let values = config.areas().into_iter().map(|area| {
                let value = known.values.get(&(config.prop, area)).map_or("-".to_owned(), text_of);
                if area == 0 { value } else { format!("0x{area:x}={value}") }
            });
            let access = match config.access & (READ | WRITE) {
                READ => "read",
                WRITE => "write",
                0 => "none",
                _ => "read_write",
            };
            let mode = match config.change_mode {
                STATIC => "static",
                CONTINUOUS => "continuous",
                _ => "on_change",
            };
            let (prop, kind) = (config.prop, Kind::of(config.prop).name());
            let values: Vec<_> = values.collect();
            format!("{} 0x{prop:08x} {kind} {access} {mode} {}\n", name_of(prop), values.join(" "))
        };
        known.configs.values().map(line).collect::<String>()
    });
    if lines.is_empty() {
        return Err("the car is not connected".into());
    }
    to.say(&lines)?;
    Ok(0)
}

/// Asks the car. Without an area, for all of them.
fn get(device: &Device, prop: i32, area: Option<i32>, to: &mut Answer) -> Outcome {
    if let Some(area) = area {
        let value = device.vehicle.get(prop, area)?;
        to.say(&format!("{}\n", text_of(&value)))?;
        return Ok(0);
    }
    let mut failed = 0;
    for area in areas_of(device, prop)? {
        let prefix = if area == 0 { String::new() } else { format!("0x{area:x} ") };
        match device.vehicle.get(prop, area) {
            Ok(value) => to.say(&format!("{prefix}{}\n", text_of(&value)))?,
            Err(why) => {
                to.complain(&format!("{prefix}{why}\n"))?;
                failed = 1;
            }
        }
    }
    Ok(failed)
}

/// A line whenever a value has changed, until whoever asked leaves.
fn watch(device: &Device, prop: i32, to: &mut Answer) -> Outcome {
    areas_of(device, prop)?;
    let (mut version, mut shown) = (0, Vec::new());
    while !to.is_abandoned() {
        let values: Vec<(i32, String)> = device.vehicle.read(|known| {
            let own = known.values.range((prop, i32::MIN)..=(prop, i32::MAX));
            own.map(|((_, area), value)| (*area, text_of(value))).collect()
        });
        for (area, text) in values.iter().filter(|value| !shown.contains(*value)) {
            let prefix = if *area == 0 { String::new() } else { format!("0x{area:x} ") };
            to.say(&format!("{prefix}{text}\n"))?;
        }
        shown = values;
        version = device.properties.wait(version, PAUSE);
    }
    Ok(0)
}
