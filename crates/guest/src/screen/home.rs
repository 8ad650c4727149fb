//! The home screen: a phone's clock and apps, or a car's instrument cluster.

use super::canvas::{Canvas, Colour};
use crate::device::Device;
use crate::identity::DeviceType;
use crate::logcat::Date;

const WHITE: Colour = 0x00ff_ffff;
const SOFT: Colour = 0x00b8_c4d6;
const ACCENT: Colour = 0x003d_dc84;

/// Everything the picture depends on; the same scene is the same picture.
#[derive(PartialEq, Eq)]
pub struct Scene {
    device_type: DeviceType,
    name: String,
    serial: String,
    version: String,
    clock: String,
    date: String,
    apps: Vec<String>,
    front: Option<String>,
    speed: i32,
    gear: String,
    range: String,
}

impl Scene {
    pub fn of(device: &Device) -> Scene {
        let identity = device.identity();
        let now = Date::of(device.clock().as_secs());
        let days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
        let or = |name: &str, otherwise: &str| {
            Some(device.properties.get(name))
                .filter(|value| !value.is_empty())
                .unwrap_or(otherwise.to_owned())
        };
        Scene {
            device_type: identity.device_type,
            name: identity.device_name,
            serial: identity.serial,
            version: identity.android_version,
            clock: format!("{:02}:{:02}", now.hour, now.minute),
            date: format!(
                "{}, {:04}-{:02}-{:02}",
                days[now.weekday as usize % 7],
                now.year,
                now.month,
                now.day
            ),
            apps: device.packages.installed().into_keys().take(8).collect(),
            front: device.activities.front().map(|component| component.short()),
            speed: device.properties.get("vehicle.speed").parse::<f32>().unwrap_or(0.0).clamp(0.0, 260.0)
                as i32,
            gear: or("vehicle.gear", "P"),
            range: or("vehicle.range", "--"),
        }
    }
}

pub fn draw(canvas: &mut Canvas, scene: &Scene) {
    match scene.device_type {
        DeviceType::Phone => phone(canvas, scene),
        DeviceType::Automotive => car(canvas, scene),
    }
}

fn phone(canvas: &mut Canvas, scene: &Scene) {
    let (width, height) = (canvas.width as i32, canvas.height as i32);
    let middle = width / 2;
    canvas.fill(0x000f_203a, 0x002a_4a6b);
    canvas.text((70, 18), 24, &scene.clock, WHITE);
    canvas.text((width - 120, 18), 24, &format!("Android {}", scene.version), WHITE);
    canvas.text((middle, height / 8), height / 8, &scene.clock, WHITE);
    canvas.text((middle, height / 4 + 20), 32, &scene.date, SOFT);
    match &scene.front {
        Some(front) => {
            canvas.panel((40, height * 3 / 8), (width - 80, height * 3 / 8), 32, 0x00f4_f6fa);
            canvas.text((middle, height / 2), fitting(front, 32, width - 120), front, 0x001b_2638);
            canvas.text((middle, height / 2 + 60), 24, "is in front", 0x006b_7688);
        }
        None => {
            for (index, app) in scene.apps.iter().enumerate() {
                let (column, row) = (index as i32 % 4, index as i32 / 4);
                let centre = (width * (2 * column + 1) / 8, height * 7 / 16 + row * 170);
                icon(canvas, centre, app);
            }
        }
    }
    canvas.panel((40, height - 260), (width - 80, 190), 36, 0x001a_2f4a);
    canvas.disc((100, height - 165), 26, ACCENT);
    canvas.text((middle + 20, height - 235), fitting(&scene.name, 40, width - 220), &scene.name, WHITE);
    canvas.text((middle + 20, height - 175), 32, &format!("Android {}", scene.version), ACCENT);
    canvas.text((middle + 20, height - 125), 24, &scene.serial, SOFT);
    canvas.panel((middle - 110, height - 24), (220, 8), 4, WHITE);
}

fn icon(canvas: &mut Canvas, centre: (i32, i32), app: &str) {
    let label = app.rsplit('.').next().unwrap_or(app);
    let mixed = app.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let colour = 0x0040_4040 | (mixed & 0x00bf_bfbf);
    canvas.panel((centre.0 - 44, centre.1 - 44), (88, 88), 24, colour);
    let letter = label.chars().next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    canvas.text((centre.0, centre.1 - 26), 48, &letter, WHITE);
    canvas.text((centre.0, centre.1 + 54), fitting(label, 24, canvas.width as i32 / 4 - 10), label, WHITE);
}

fn car(canvas: &mut Canvas, scene: &Scene) {
    let (width, height) = (canvas.width as i32, canvas.height as i32);
    canvas.fill(0x0005_080f, 0x0011_1c2e);
    let (centre, radius) = ((width * 5 / 16, height / 2), height * 3 / 8);
    canvas.arc(centre, (radius - 22, radius), (-135.0, 135.0), 0x0024_3348);
    let to = -135.0 + 270.0 * scene.speed as f32 / 260.0;
    canvas.arc(centre, (radius - 22, radius), (-135.0, to), ACCENT);
    canvas.text((centre.0, centre.1 - height / 8), height / 5, &scene.speed.to_string(), WHITE);
    canvas.text((centre.0, centre.1 + height / 10), 32, "km/h", SOFT);
    canvas.text((centre.0, centre.1 + height / 5), 64, &scene.gear, ACCENT);
    let (left, panel) = (width * 19 / 32, width * 12 / 32);
    let middle = left + panel / 2;
    canvas.text((middle, height / 10), height / 7, &scene.clock, WHITE);
    canvas.text((middle, height / 10 + height / 6), 28, &scene.date, SOFT);
    canvas.panel((left, height * 3 / 8), (panel, height / 4), 28, 0x001a_2a40);
    let shown = scene.front.clone().unwrap_or_else(|| format!("Range {} km", scene.range));
    canvas.text((middle, height / 2 - 24), fitting(&shown, 40, panel - 40), &shown, WHITE);
    canvas.text((middle, height * 11 / 16), fitting(&scene.name, 40, panel), &scene.name, WHITE);
    canvas.text(
        (middle, height * 11 / 16 + 60),
        32,
        &format!("Android {} Automotive", scene.version),
        ACCENT,
    );
    canvas.text((middle, height * 11 / 16 + 110), 24, &scene.serial, SOFT);
}

/// The height at which a text is no wider than there is room; letters are about half as wide as high.
fn fitting(text: &str, wanted: i32, room: i32) -> i32 {
    let letters = text.chars().count().max(1) as i32;
    wanted.min(room * 2 / letters * 10 / 11).max(10)
}
