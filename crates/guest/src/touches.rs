//! Touches and keys from the display's viewer: logged, and able to leave what is in front.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::device::Device;
use crate::logs::{Buffer, Level};
use crate::screen;

/// The kernel's record: two words of time, type, code, value.
const RECORD: usize = 24;
const KEY: u16 = 1;
const ABSOLUTE: u16 = 3;
const BUTTON_LEFT: u16 = 0x110;
const ESCAPE: u16 = 1;
const HOME: u16 = 102;
/// What a tablet's position is counted in.
const RANGE: usize = 0x7fff;

/// Follows every input device there is.
pub fn start(device: &Arc<Device>) {
    for entry in fs::read_dir("/dev/input").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("event") {
            let device = device.clone();
            let path = entry.path();
            let _ =
                std::thread::Builder::new().name("touches".to_owned()).spawn(move || follow(&device, &path));
        }
    }
}

fn follow(device: &Device, path: &Path) {
    let Ok(mut events) = File::open(path) else {
        return;
    };
    let (width, height) = screen::size(device);
    let (mut x, mut y) = (0, 0);
    let mut record = [0; RECORD];
    while events.read_exact(&mut record).is_ok() {
        let (kind, code) =
            (u16::from_ne_bytes([record[16], record[17]]), u16::from_ne_bytes([record[18], record[19]]));
        let value = i32::from_ne_bytes([record[20], record[21], record[22], record[23]]);
        let scaled = |size: usize| usize::try_from(value).unwrap_or(0).min(RANGE) * (size - 1) / RANGE;
        match (kind, code, value) {
            (ABSOLUTE, 0, _) => x = scaled(width),
            (ABSOLUTE, 1, _) => y = scaled(height),
            (KEY, BUTTON_LEFT, 1) => touched(device, (x, y), height),
            (KEY, ESCAPE, 1) => left(device, "BACK"),
            (KEY, HOME, 1) => left(device, "HOME"),
            _ => {}
        }
    }
}

/// A touch of the bar at the bottom leads home.
fn touched(device: &Device, (x, y): (usize, usize), height: usize) {
    device.log.add(Buffer::Events, Level::Info, "input", std::process::id(), &format!("touch [{x}, {y}]"));
    if y > height * 31 / 32 {
        left(device, "HOME");
    }
}

/// Leaves what is in front by a key: home, or back by one.
pub fn left(device: &Device, key: &str) {
    match key {
        "HOME" => device.activities.home(),
        _ => device.activities.back(),
    }
    device.properties.nudge();
    device.log.add(Buffer::Events, Level::Info, "input", std::process::id(), &format!("keyevent {key}"));
}
