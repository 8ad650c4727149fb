//! The dump: what people at Android's shell ask of a car and tell it, as texts.

use std::fmt::Write as _;

use paddock_model::vehicles::{AreaId, PropertyId, PropertyStatus};

use crate::values::{self, Key, Limits, Raw};
use crate::vehicle::{Refusal, Vehicle};

const HELP: &str = "\
Options of this car:
  --help                                 this text
  --list                                 every property, its areas and its values
  --get PROP [-a AREA] [PROP …]          some of them
  --set PROP VALUE [-a AREA] [--set …]   sets values
  --inject-event PROP VALUE [-a AREA]    sets a value, and tells of it although it has not changed
  --save-prop PROP [-a AREA]             remembers a value until --restore-prop, or until the server ends
  --restore-prop PROP [-a AREA]          sets the value that was remembered
  --set-minmaxvalue PROP [-a AREA] [-min VALUE] [-max VALUE]
                                         the least and the most; without a value there is no bound
  --set-supportedvalues PROP [-a AREA] [VALUE …]
                                         the values to choose from; without one there is no list
  --dumpSub                              who is told of what
PROP is a name or a number. AREA is a number; without it the whole car (0) is meant, or the only area that there is.
VALUE is any of: -i INT32… -i64 INT64… -f FLOAT… -s TEXT -b HEX
";

pub struct Dumped {
    pub text: String,
    /// Whoever keeps the properties' descriptions should ask for them again.
    pub configs_changed: bool,
}

/// The caller may not do what it asked for.
pub struct Denied(pub String);

pub fn dump(vehicle: &Vehicle, may_drive: bool, options: &[String]) -> Result<Dumped, Denied> {
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    let changes = |option: &&str| {
        matches!(
            *option,
            "--set"
                | "--restore-prop"
                | "--inject-event"
                | "--genfakedata"
                | "--set-minmaxvalue"
                | "--set-supportedvalues"
        )
    };
    if let Some(option) = words.iter().find(|word| changes(word)).filter(|_| !may_drive) {
        return Err(Denied(format!(
            "{option} changes the car, which you may only look at; ask for the right to drive it"
        )));
    }
    let (mut text, mut configs_changed) = (String::new(), false);
    let said = match words.split_first() {
        None | Some((&"--list", _)) => Ok(list(vehicle)),
        Some((&"--help", _)) => Ok(HELP.to_owned()),
        Some((&"--get", rest)) => get(vehicle, rest),
        Some((&"--set", rest)) => {
            let mut said = String::new();
            for one in rest.split(|word| *word == "--set") {
                let done = assignment(vehicle, one).and_then(|(key, raw)| {
                    told(vehicle.set(vec![(key, raw, PropertyStatus::Available)]).pop().unwrap_or(Ok(())))?;
                    Ok(format!("{} set\n", vehicle.catalogue().label(key.0)))
                });
                said.push_str(&done.unwrap_or_else(|problem| format!("{problem}\n")));
            }
            Ok(said)
        }
        Some((&"--inject-event", rest)) => assignment(vehicle, rest).and_then(|(key, raw)| {
            told(vehicle.inject(key, raw, PropertyStatus::Available))?;
            Ok(format!("{} told\n", vehicle.catalogue().label(key.0)))
        }),
        Some((&"--save-prop", rest)) => place(vehicle, rest).and_then(|(key, _)| {
            told(vehicle.save_value(key))?;
            Ok(format!("{} saved\n", vehicle.catalogue().label(key.0)))
        }),
        Some((&"--restore-prop", rest)) => place(vehicle, rest).and_then(|(key, _)| {
            told(vehicle.restore_value(key))?;
            Ok(format!("{} restored\n", vehicle.catalogue().label(key.0)))
        }),
        Some((&"--set-minmaxvalue", rest)) => set_min_max(vehicle, rest),
        Some((&"--set-supportedvalues", rest)) => set_supported(vehicle, rest),
        Some((&"--dumpSub", _)) => Ok(vehicle.describe_subscriptions()),
        Some((&"--getWithArg", _)) => {
            Err("--getWithArg is not supported; use --get, which needs no value".to_owned())
        }
        Some((&"--genfakedata", _)) => {
            Err("--genfakedata is not supported; replay a recorded trace, or use --inject-event".to_owned())
        }
        Some((&("--genTestVendorConfigs" | "--restoreVendorConfigs"), _)) => {
            Err("vendor properties are not made up here; give the server a property file that has them"
                .to_owned())
        }
        Some((other, _)) => Err(format!("{other} is not known; use --help")),
    };
    match said {
        Ok(said) => {
            configs_changed = matches!(words.first(), Some(&"--set-minmaxvalue" | &"--set-supportedvalues"));
            text.push_str(&said);
        }
        Err(problem) => {
            let _ = writeln!(text, "{problem}");
        }
    }
    Ok(Dumped { text, configs_changed })
}

fn told(result: Result<(), Refusal>) -> Result<(), String> {
    result.map_err(|refusal| format!("{} ({})", refusal.message, refusal.code.as_str_name()))
}

fn list(vehicle: &Vehicle) -> String {
    let catalogue = vehicle.catalogue();
    let mut text = format!("{} properties\n", catalogue.entries().count());
    for (key, _) in catalogue.keys() {
        text.push_str(&line(vehicle, key));
    }
    text
}

fn line(vehicle: &Vehicle, (property, area): Key) -> String {
    let label = vehicle.catalogue().label(property);
    let mut text = format!("{label} {:#010x} area {:#x}: ", property.0, area.0);
    match vehicle.get((property, area)) {
        Ok(value) => {
            let status = value.status();
            let timestamp = value.timestamp;
            let kind = property.value_type().unwrap_or(paddock_model::vehicles::PropertyType::Mixed);
            let json = values::to_json(kind, &values::raw(value));
            let _ = writeln!(text, "{json} {} at {timestamp}", status.as_str_name());
        }
        Err(refusal) => {
            let _ = writeln!(text, "{}", refusal.code.as_str_name());
        }
    }
    text
}

fn get(vehicle: &Vehicle, mut words: &[&str]) -> Result<String, String> {
    let mut text = String::new();
    while !words.is_empty() {
        let (key, rest) = place(vehicle, words)?;
        text.push_str(&line(vehicle, key));
        words = rest;
    }
    if text.is_empty() { Err("--get needs a property's name or number".to_owned()) } else { Ok(text) }
}

/// A property and its area, and what stands behind them.
fn place<'a, 'w>(vehicle: &Vehicle, words: &'w [&'a str]) -> Result<(Key, &'w [&'a str]), String> {
    let (name, rest) = words.split_first().ok_or("a property's name or number is missing; use --help")?;
    let property =
        vehicle.catalogue().find(name).ok_or_else(|| format!("{name} is no property that is known here"))?;
    let (area, rest) = match rest {
        ["-a", area, rest @ ..] => (Some(area_number(area)?), rest),
        _ => (None, rest),
    };
    Ok(((property, area.unwrap_or_else(|| only_area(vehicle, property))), rest))
}

fn only_area(vehicle: &Vehicle, property: PropertyId) -> AreaId {
    let entry = vehicle.catalogue().entry(property);
    match entry.map(|entry| entry.config.area_configs.as_slice()) {
        Some([only]) => AreaId(only.area_id),
        _ => AreaId(0),
    }
}

fn area_number(text: &str) -> Result<AreaId, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok().map(u32::cast_signed),
        None => text.parse().ok(),
    };
    number.map(AreaId).ok_or_else(|| format!("{text} is not an area's number"))
}

/// `PROP VALUE`, with `-a AREA` anywhere.
fn assignment(vehicle: &Vehicle, words: &[&str]) -> Result<(Key, Raw), String> {
    let ((property, mut area), mut rest) = place(vehicle, words)?;
    let mut raw = Raw::default();
    while let Some((flag, after)) = rest.split_first() {
        let until = after.iter().position(|word| is_flag(word)).unwrap_or(after.len());
        let (arguments, behind) = after.split_at(until);
        match *flag {
            "-a" => {
                area = area_number(arguments.first().copied().unwrap_or_default())?;
            }
            // A client's own time; the car has its own.
            "-t" => {}
            flag => part(&mut raw, flag, arguments)?,
        }
        rest = behind;
    }
    Ok(((property, area), raw))
}

fn is_flag(word: &str) -> bool {
    matches!(word, "-a" | "-i" | "-i64" | "-f" | "-s" | "-b" | "-t" | "-min" | "-max")
}

fn part(raw: &mut Raw, flag: &str, arguments: &[&str]) -> Result<(), String> {
    let bad = |argument: &str| format!("{argument} is not what {flag} takes; use --help");
    match flag {
        "-i" => {
            for argument in arguments {
                let wide = match argument.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(hex, 16).ok(),
                    None => argument.parse().ok(),
                };
                raw.int32_values
                    .push(wide.and_then(|wide| i32::try_from(wide).ok()).ok_or_else(|| bad(argument))?);
            }
        }
        "-i64" => {
            for argument in arguments {
                raw.int64_values.push(argument.parse().map_err(|_| bad(argument))?);
            }
        }
        "-f" => {
            for argument in arguments {
                raw.float_values.push(argument.parse().map_err(|_| bad(argument))?);
            }
        }
        "-s" => raw.string_value = arguments.join(" "),
        "-b" => {
            for argument in arguments {
                let hex = argument.trim_start_matches("0x");
                if !hex.is_ascii() || hex.len() % 2 != 0 {
                    return Err(bad(argument));
                }
                for at in (0..hex.len()).step_by(2) {
                    raw.byte_values
                        .push(u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| bad(argument))?);
                }
            }
        }
        other => return Err(format!("{other} is not known here; use --help")),
    }
    Ok(())
}

/// A bare number, of the kind that the property holds.
fn scalar(vehicle: &Vehicle, property: PropertyId, text: &str) -> Result<Raw, String> {
    let kind = vehicle.catalogue().entry(property).map(|entry| entry.kind);
    let kind = kind.ok_or_else(|| format!("this car has no property {:#x}", property.0))?;
    let value = serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()));
    values::from_json(kind, &value).map_err(|problem| format!("{text} {problem}"))
}

fn set_min_max(vehicle: &Vehicle, words: &[&str]) -> Result<String, String> {
    let (key, mut rest) = place(vehicle, words)?;
    let before = told_limits(vehicle, key)?;
    let mut limits = Limits { min: None, max: None, supported: before.supported };
    while let [flag, value, behind @ ..] = rest {
        match *flag {
            "-min" => limits.min = Some(scalar(vehicle, key.0, value)?),
            "-max" => limits.max = Some(scalar(vehicle, key.0, value)?),
            other => return Err(format!("{other} is not known here; use -min and -max")),
        }
        rest = behind;
    }
    if let [left] = rest {
        return Err(format!("{left} needs a value"));
    }
    told(vehicle.set_limits(key, limits))?;
    Ok(format!("{} has new bounds\n", vehicle.catalogue().label(key.0)))
}

fn set_supported(vehicle: &Vehicle, words: &[&str]) -> Result<String, String> {
    let (key, rest) = place(vehicle, words)?;
    let before = told_limits(vehicle, key)?;
    let supported = rest.iter().map(|text| scalar(vehicle, key.0, text)).collect::<Result<_, _>>()?;
    told(vehicle.set_limits(key, Limits { supported, ..before }))?;
    Ok(format!("{} has a new list of values\n", vehicle.catalogue().label(key.0)))
}

fn told_limits(vehicle: &Vehicle, key: Key) -> Result<Limits, String> {
    vehicle.limits(key).map_err(|refusal| refusal.message)
}
