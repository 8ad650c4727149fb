//! What the figures were measured on, and with which versions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Bench, disk, flush, nginx, wrk};

/// A hundred ticks a second, on every Linux that we know of.
const MICROSECONDS_A_TICK: f64 = 10_000.0;

pub fn facts(bench: &Bench) -> Result<Vec<(&'static str, String)>> {
    let cores = std::thread::available_parallelism()?;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let fdatasync = disk::fdatasync_microseconds(&bench.folder.join("appended"))?;
    Ok(vec![
        ("processor", format!("{}, {cores} cores", processor()?)),
        ("kernel", std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned()),
        (
            "load before",
            format!("{} (1, 5 and 15 minutes; other work on the machine is noise)", load.join(" ")),
        ),
        ("data folder", format!("{}, {}", bench.folder.display(), file_system(&bench.folder)?)),
        ("fdatasync", format!("{fdatasync:.0} µs, after an append of 4 KiB in the data folder")),
        ("slowed flush", format!("{}; delays fsync and fdatasync by 4 ms", flush::strace_version()?)),
        ("paddock", version_of(&bench.paddockd)?),
        ("nginx", format!("{}; 2 workers, access log off, keep-alive", nginx::version()?)),
        ("load client", format!("{}; 1 thread", wrk::version()?)),
        ("sqlite", format!("{}; WAL, synchronous=FULL", rusqlite::version())),
        ("transport", "plain HTTP/1.1 on loopback; Paddock's rate limits lifted".to_owned()),
    ])
}

/// What a process has spent on all processors since its start.
pub fn processor_microseconds(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold blanks; behind it, user and system time are the 12th and 13th.
    let (_, numbers) = status.rsplit_once(") ").context("no name in /proc/…/stat")?;
    let mut ticks = numbers.split(' ').skip(11).map(str::parse::<f64>);
    let mut next = || ticks.next().context("too few numbers in /proc/…/stat");
    Ok((next()?? + next()??) * MICROSECONDS_A_TICK)
}

fn processor() -> Result<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo")?;
    let model =
        text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    Ok(model.map_or("unknown", |(_, model)| model.trim()).to_owned())
}

fn version_of(paddockd: &Path) -> Result<String> {
    let output = Command::new(paddockd).arg("--version").output().context("run paddockd --version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The type of the file system that holds `path`, such as ext4.
pub fn file_system(path: &Path) -> Result<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let found = file_system_among(&mounts, path).context("the data folder is on no known mount")?;
    Ok(found.to_owned())
}

/// The deepest mount wins, and of two at one place the later, which hides the earlier.
fn file_system_among<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            Some((Path::new(mount.split(' ').nth(4)?), kind.split(' ').next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.components().count())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_a_folder() {
        let mounts = "\
1 0 254:0 / / rw,relatime - ext4 /dev/vda rw
2 1 0:5 / /var/tmp rw shared:1 - xfs /dev/vdb rw
3 1 0:6 / /var/tmpfiles rw - tmpfs tmpfs rw
4 1 0:7 / /var/tmp rw - btrfs /dev/vdc rw
";
        for (path, kind) in
            [("/home", "ext4"), ("/var/tmp/a", "btrfs"), ("/var/tmpfiles/a", "tmpfs"), ("/var/tm", "ext4")]
        {
            assert_eq!(file_system_among(mounts, Path::new(path)), Some(kind), "{path}");
        }
    }
}
