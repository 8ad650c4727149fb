//! The first process: makes a machine out of a kernel, starts the agent, and takes care of orphans.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{Pid, WaitOptions};

/// This program on the disk.
const PROGRAM: &str = "/system/bin/paddock-guest";
const ROOT_DEVICE: &str = "/dev/vda";
const DISK_TIME: Duration = Duration::from_secs(20);

fn mount_new(kind: &str, folder: &str, flags: MountFlags, options: &CStr) -> Result<()> {
    fs::create_dir_all(folder)?;
    match mount(kind, folder, kind, flags, options) {
        // The agent may be restarted on a machine that is already made.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("mount {kind} on {folder}")),
    }
}

/// In the initramfs: loads what is needed to see the disk, and goes on from there.
pub fn from_initramfs() -> Result<()> {
    let plain = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_new("devtmpfs", "/dev", MountFlags::NOSUID, c"mode=0755")?;
    mount_new("proc", "/proc", plain, c"")?;
    mount_new("sysfs", "/sys", plain, c"")?;
    load_modules("/modules")?;
    let started = Instant::now();
    while !Path::new(ROOT_DEVICE).exists() {
        if started.elapsed() > DISK_TIME {
            bail!("there is no disk {ROOT_DEVICE}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    fs::create_dir_all("/disk")?;
    mount(ROOT_DEVICE, "/disk", "ext4", MountFlags::NOATIME, c"")
        .with_context(|| format!("mount {ROOT_DEVICE}"))?;
    for folder in ["/dev", "/proc", "/sys"] {
        mount_move(folder, format!("/disk{folder}")).with_context(|| format!("move {folder}"))?;
    }
    // What is left behind would stay in memory for ever.
    let _ = fs::remove_dir_all("/modules");
    let _ = fs::remove_file("/init");
    std::env::set_current_dir("/disk")?;
    mount_move(".", "/").context("move the root")?;
    rustix::process::chroot(".").context("enter the root")?;
    std::env::set_current_dir("/")?;
    let error = Command::new(PROGRAM).arg("init").exec();
    Err(error).with_context(|| format!("start {PROGRAM}"))
}

/// Loads the modules in a folder in the order that its file `order` gives.
pub fn load_modules(folder: &str) -> Result<()> {
    let order =
        fs::read_to_string(format!("{folder}/order")).with_context(|| format!("read {folder}/order"))?;
    for name in order.lines() {
        let file = File::open(format!("{folder}/{name}")).with_context(|| format!("open module {name}"))?;
        match rustix::system::finit_module(&file, c"", 0) {
            // Without its device a module has nothing to do; loaded twice, nothing more.
            Ok(()) | Err(rustix::io::Errno::EXIST | rustix::io::Errno::NODEV) => {}
            Err(error) => return Err(error).with_context(|| format!("load module {name}")),
        }
    }
    Ok(())
}

/// On the disk: mounts the rest and keeps the agent running.
pub fn on_disk() -> Result<()> {
    mount_new("tmpfs", "/run", MountFlags::NOSUID, c"mode=0755,size=16m")?;
    mount_new("tmpfs", "/tmp", MountFlags::NOSUID, c"mode=1777,size=64m")?;
    mount_new("devpts", "/dev/pts", MountFlags::NOSUID, c"mode=0620,ptmxmode=0666")?;
    mount_new("tmpfs", "/dev/shm", MountFlags::NOSUID, c"mode=1777,size=64m")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    loop {
        let agent = Command::new(PROGRAM).arg("agent").spawn().context("start the agent")?;
        wait_for(i32::try_from(agent.id())?)?;
        eprintln!("paddock: the agent has ended; starting it again");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits for this child, and buries every orphan that ends meanwhile.
fn wait_for(child: i32) -> io::Result<()> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if Some(pid) == Pid::from_raw(child) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
