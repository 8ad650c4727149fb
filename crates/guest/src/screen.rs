//! The screen: what is drawn for the state the device is in, shown on the display device and taken by `screencap`.

mod canvas;
mod cluster;
mod display;
mod home;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

pub use canvas::Canvas;

use crate::device::Device;

/// At most so often is anything drawn, however much happens.
const PAUSE: Duration = Duration::from_millis(60);

/// How large the screen is, `ro.paddock.screen`.
pub fn size(device: &Device) -> (usize, usize) {
    let text = device.properties.get("ro.paddock.screen");
    let parsed =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parsed
        .filter(|(width, height)| (64..=4096).contains(width) && (64..=4096).contains(height))
        .unwrap_or((720, 1280))
}

/// The screen as it is now.
pub fn draw(device: &Device) -> Canvas {
    let (width, height) = size(device);
    let mut canvas = Canvas::new(width, height);
    home::draw(&mut canvas, None, &home::Scene::of(device, (width, height)));
    canvas
}

/// Keeps the display device up to date, if there is one. Draws when something has changed, not by the clock.
pub fn start(device: &Arc<Device>) -> io::Result<()> {
    let device = device.clone();
    std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
        let (width, height) = size(&device);
        let mut display = match display::Display::open(width, height) {
            Ok(Some(display)) => display,
            Ok(None) => return device.log.info("screen", "no display device; screencap works all the same"),
            Err(error) => return device.log.warn("screen", &format!("no picture: {error:#}")),
        };
        let (mut shown, mut version) = (None, 0);
        let mut canvas = Canvas::new(width, height);
        loop {
            let scene = home::Scene::of(&device, (width, height));
            if shown.as_ref() != Some(&scene) {
                let changed = home::draw(&mut canvas, shown.as_ref(), &scene);
                display.show(&canvas, &changed);
                shown = Some(scene);
                std::thread::sleep(PAUSE);
            }
            // The clock on the screen shows minutes.
            let rest = 60_000 - device.clock().as_millis() as u64 % 60_000;
            version = device.properties.wait(version, Duration::from_millis(rest + 1));
        }
    })?;
    Ok(())
}

/// As PNG.
pub fn write_png(canvas: &Canvas, to: impl Write) -> io::Result<()> {
    let mut encoder = png::Encoder::new(to, canvas.width as u32, canvas.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let pixels: Vec<u8> = canvas
        .pixels
        .iter()
        .flat_map(|pixel| [(pixel >> 16) as u8, (pixel >> 8) as u8, *pixel as u8])
        .collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

/// As Android's `screencap` without `-p`: width, height, format RGBA_8888, colour space sRGB, then the pixels.
pub fn write_raw(canvas: &Canvas, mut to: impl Write) -> io::Result<()> {
    let mut bytes: Vec<u8> = [canvas.width as u32, canvas.height as u32, 1, 1]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    bytes.extend(
        canvas.pixels.iter().flat_map(|pixel| [(pixel >> 16) as u8, (pixel >> 8) as u8, *pixel as u8, 0xff]),
    );
    to.write_all(&bytes)
}
