//! `input`: touches and keys, written to the log; the keys home and back move the screen.

use super::{Failure, Outcome};
use crate::device::Device;
use crate::logs::{Buffer, Level};
use crate::touches;

pub fn input(device: &Device, args: &[&str]) -> Outcome {
    let args = match args {
        ["touchscreen" | "keyboard" | "mouse", rest @ ..] => rest,
        rest => rest,
    };
    let numbers = |words: &[&str]| -> Result<Vec<f32>, Failure> {
        words
            .iter()
            .map(|word| word.parse().map_err(|_| Failure::Wrong(format!("'{word}' is no number"))))
            .collect()
    };
    let what = match args {
        ["tap", place @ ..] if place.len() == 2 => format!("tap {:?}", numbers(place)?),
        ["swipe", places @ ..] if matches!(places.len(), 4 | 5) => format!("swipe {:?}", numbers(places)?),
        ["text", text @ ..] if !text.is_empty() => format!("text '{}'", text.join(" ")),
        ["keyevent", keys @ ..] if !keys.is_empty() => {
            for key in keys {
                match key.trim_start_matches("KEYCODE_") {
                    "HOME" | "3" => touches::left(device, "HOME"),
                    "BACK" | "4" => touches::left(device, "BACK"),
                    key => log(device, &format!("keyevent {key}")),
                }
            }
            return Ok(0);
        }
        _ => return Err("usage: input tap X Y | swipe X Y X Y [MS] | text TEXT | keyevent KEY...".into()),
    };
    log(device, &what);
    Ok(0)
}

fn log(device: &Device, what: &str) {
    device.log.add(Buffer::Events, Level::Info, "input", std::process::id(), what);
}
