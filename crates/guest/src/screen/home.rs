//! The home screen: a phone's clock and apps, or the instrument cluster of a car.

use super::canvas::{Area, Canvas, Colour};
use super::cluster;
use crate::device::Device;
use crate::identity::DeviceType;
use crate::logcat::Date;

pub const WHITE: Colour = 0x00ff_ffff;
pub const SOFT: Colour = 0x00b8_c4d6;
pub const ACCENT: Colour = 0x003d_dc84;

/// Everything the picture depends on; the same scene is the same picture.
#[derive(PartialEq)]
pub enum Scene {
    Phone(Face),
    Car(Vec<cluster::Part>),
}

/// What both kinds of device show of themselves.
#[derive(Clone, PartialEq, Eq)]
pub struct Face {
    pub name: String,
    pub serial: String,
    pub version: String,
    pub clock: String,
    pub date: String,
    pub apps: Vec<String>,
    pub front: Option<String>,
}

impl Face {
    fn of(device: &Device) -> Face {
        let identity = device.identity();
        let now = Date::of(device.clock().as_secs());
        let days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
        Face {
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
        }
    }
}

impl Scene {
    pub fn of(device: &Device, size: (usize, usize)) -> Scene {
        let face = Face::of(device);
        match device.identity().device_type {
            DeviceType::Phone => Scene::Phone(face),
            DeviceType::Automotive => {
                let link = device.vehicle.link();
                let instruments = device.vehicle.read(|known| cluster::Instruments::of(known, link));
                Scene::Car(cluster::parts(&face, &instruments, size))
            }
        }
    }
}

/// Draws what differs from the scene that the canvas shows; says where that is.
pub fn draw(canvas: &mut Canvas, before: Option<&Scene>, scene: &Scene) -> Vec<Area> {
    match scene {
        Scene::Phone(face) => {
            phone(canvas, face);
            vec![canvas.whole()]
        }
        Scene::Car(parts) => {
            let shown = match before {
                Some(Scene::Car(shown)) => shown.as_slice(),
                _ => &[],
            };
            cluster::draw(canvas, shown, parts)
        }
    }
}

fn phone(canvas: &mut Canvas, scene: &Face) {
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

/// The height at which a text is no wider than there is room; letters are about half as wide as high.
pub fn fitting(text: &str, wanted: i32, room: i32) -> i32 {
    let letters = text.chars().count().max(1) as i32;
    wanted.min(room * 2 / letters * 10 / 11).max(10)
}
