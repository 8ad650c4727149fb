//! Holding every other process still, so that none of them runs in a clone before the clone is told who it is.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const GROUPS: &str = "/sys/fs/cgroup";
const HELD: &str = "/sys/fs/cgroup/held";
/// A process that waits for a device cannot be held; it is not waited for for ever.
const PATIENCE: Duration = Duration::from_millis(500);

/// They stand where they are, and are not told: no signal, no stopped child. Those that are born of them stand still, too.
pub fn hold() -> io::Result<()> {
    if !Path::new(GROUPS).join("cgroup.procs").exists() {
        let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
        // Without this option to move a process takes the kernel some hundredths of a second.
        rustix::mount::mount("cgroup2", GROUPS, "cgroup2", flags, c"favordynmods")
            .or_else(|_| rustix::mount::mount("cgroup2", GROUPS, "cgroup2", flags, c""))?;
    }
    match fs::create_dir(HELD) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // Once more for those that were born meanwhile.
    for _ in 0..2 {
        gather()?;
    }
    fs::write(Path::new(HELD).join("cgroup.freeze"), "1")?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let told = fs::read_to_string(Path::new(HELD).join("cgroup.events"))?;
        if told.lines().any(|line| line == "frozen 1") {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// All but the first process, this one and the kernel's own, which cannot be moved.
fn gather() -> io::Result<()> {
    let own = std::process::id();
    let held = fs::read_to_string(Path::new(HELD).join("cgroup.procs"))?;
    let held: Vec<u32> = held.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in fs::read_dir("/proc")? {
        let pid: Option<u32> = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid != 1 && *pid != own && !held.contains(pid)) else { continue };
        // The kernel's own have no command line.
        if fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            // It may have ended.
            let _ = fs::write(Path::new(HELD).join("cgroup.procs"), pid.to_string());
        }
    }
    Ok(())
}

/// Also where nobody is held.
pub fn release() {
    let _ = fs::write(Path::new(HELD).join("cgroup.freeze"), "0");
}
