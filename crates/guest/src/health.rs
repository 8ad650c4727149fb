//! How the device is: what the host shows of it and judges it by.

use std::fs;

use serde_json::{Value, json};

use crate::device::Device;

pub struct Memory {
    pub total: u64,
    pub available: u64,
}

pub fn memory() -> Memory {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = |name: &str| {
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok());
        found.unwrap_or(0) * 1024
    };
    Memory { total: line("MemTotal:"), available: line("MemAvailable:") }
}

/// From the kernel's start to the device being ready, in milliseconds.
pub fn boot_duration(device: &Device) -> Option<u64> {
    device.properties.get("ro.boottime.ready").parse().ok()
}

pub fn report(device: &Device, with_properties: bool) -> Value {
    let memory = memory();
    let disk = rustix::fs::statvfs(device.path("/data").as_path()).ok();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut report = json!({
        "ready": device.properties.get("sys.boot_completed") == "1",
        "uptimeMs": device.uptime().as_millis() as u64,
        "bootDurationMs": boot_duration(device),
        "clockMs": device.clock().as_millis() as u64,
        "memory": {"totalBytes": memory.total, "availableBytes": memory.available},
        "disk": disk.map(|disk| json!({
            "totalBytes": disk.f_blocks * disk.f_frsize,
            "availableBytes": disk.f_bavail * disk.f_frsize,
        })),
        "load": load.split_whitespace().next().and_then(|load| load.parse::<f64>().ok()),
        "adb": {"connections": device.connections.count()},
        "frozen": device.freezer.is_frozen(),
        "watchdogThaws": device.freezer.expired(),
        "lastLog": device.log.last(),
        "vehicle": device.vehicle.link().name(),
    });
    if with_properties {
        report["properties"] = json!(device.properties.all());
    }
    report
}
