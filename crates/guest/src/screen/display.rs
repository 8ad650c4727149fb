//! QEMU's bochs-display, driven from here: the kernel of the reference device has no driver for any screen.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::canvas::{Area, Canvas};
use crate::kernel::Mapping;

const VENDOR: &str = "0x1234";
const DEVICE: &str = "0x1111";
/// Where the mode's registers begin in the second region, each of two bytes.
const REGISTERS: usize = 0x500;
/// Enabled, with all memory in one piece.
const ENABLED: u16 = 0x41;

pub struct Display {
    memory: Mapping,
    // Unmapped only with the display: the mode stands in it.
    _registers: Mapping,
    shown: Vec<u32>,
    width: usize,
}

impl Display {
    /// Sets the mode, if there is such a device.
    pub fn open(width: usize, height: usize) -> Result<Option<Display>> {
        let Some(folder) = find() else {
            return Ok(None);
        };
        fs::write(folder.join("enable"), "1").context("enable the display")?;
        let open = |region: &str| File::options().read(true).write(true).open(folder.join(region));
        let memory =
            Mapping::new(&open("resource0").context("open the display's memory")?, width * height * 4)
                .context("map the display's memory")?;
        let mut registers = Mapping::new(&open("resource2").context("open the display's registers")?, 4096)
            .context("map the display's registers")?;
        let mode =
            [(4, 0), (1, width), (2, height), (3, 32), (5, 0), (6, width), (7, height), (8, 0), (9, 0)];
        for (register, value) in mode {
            registers.set_register(REGISTERS + register * 2, value as u16);
        }
        registers.set_register(REGISTERS + 4 * 2, ENABLED);
        Ok(Some(Display { memory, _registers: registers, shown: Vec::new(), width }))
    }

    /// Copies the rows of these parts that differ from what is shown.
    pub fn show(&mut self, canvas: &Canvas, parts: &[Area]) {
        // The display's memory is slow and this is not: nothing is written that is there already.
        self.shown.resize(canvas.pixels.len(), !0);
        for part in parts {
            for y in part.top..part.bottom {
                let start = y as usize * self.width;
                let row = start + part.left as usize..start + part.right as usize;
                if self.shown[row.clone()] != canvas.pixels[row.clone()] {
                    self.memory.write(row.start * 4, &canvas.pixels[row.clone()]);
                    self.shown[row.clone()].copy_from_slice(&canvas.pixels[row]);
                }
            }
        }
    }
}

fn find() -> Option<PathBuf> {
    let is = |folder: &PathBuf, file: &str, wanted: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == wanted)
    };
    let devices = fs::read_dir("/sys/bus/pci/devices").ok()?.flatten().map(|entry| entry.path());
    devices.into_iter().find(|folder| is(folder, "vendor", VENDOR) && is(folder, "device", DEVICE))
}
