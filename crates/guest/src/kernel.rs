//! The few things that the kernel offers and no safe wrapper does: two ioctls, a mapping, a session of one's own.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;

use rustix::ioctl::{IntegerSetter, NoArg, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const FIFREEZE: u32 = opcode::read_write::<i32>(b'X', 119);
const FITHAW: u32 = opcode::read_write::<i32>(b'X', 120);
const RNDRESEEDCRNG: u32 = opcode::none(b'R', 7);

/// Stops every write to the file system that `folder` is on, with everything before it on the disk.
pub fn freeze(folder: &File) -> io::Result<()> {
    // SAFETY: FIFREEZE ignores its argument.
    Ok(unsafe { ioctl(folder.as_fd(), IntegerSetter::<FIFREEZE>::new_usize(0)) }?)
}

/// Lets the writes go on.
pub fn thaw(folder: &File) -> io::Result<()> {
    // SAFETY: FITHAW ignores its argument.
    Ok(unsafe { ioctl(folder.as_fd(), IntegerSetter::<FITHAW>::new_usize(0)) }?)
}

/// Makes the kernel's generator take up at once what was written to `/dev/urandom`.
pub fn reseed(random: &File) -> io::Result<()> {
    // SAFETY: RNDRESEEDCRNG takes no argument.
    Ok(unsafe { ioctl(random.as_fd(), NoArg::<RNDRESEEDCRNG>::new()) }?)
}

/// The child becomes the leader of a session whose terminal is its standard input, so that Ctrl-C reaches it.
pub fn lead_session(command: &mut Command) {
    // SAFETY: between fork and exec only two system calls are made and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
}

/// A device's memory, shared with the device.
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the mapping alone, and writing takes `&mut self`.
unsafe impl Send for Mapping {}

impl Mapping {
    pub fn new(file: &File, length: usize) -> io::Result<Mapping> {
        // SAFETY: the kernel picks a free address; nobody else knows the mapping.
        let start = unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), length, flags, MapFlags::SHARED, file.as_fd(), 0)?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Mapping { start, length })
    }

    /// Writes whole pixels from `offset` on; what lies beyond the end is left out.
    pub fn write(&mut self, offset: usize, pixels: &[u32]) {
        for (index, pixel) in pixels.iter().enumerate() {
            let at = offset + index * 4;
            if at + 4 > self.length {
                return;
            }
            // SAFETY: the four bytes lie inside the mapping; a device's memory wants volatile access.
            unsafe { self.start.add(at).cast::<u32>().write_volatile(*pixel) };
        }
    }

    /// Sets one 16-bit register.
    pub fn set_register(&mut self, offset: usize, value: u16) {
        assert!(offset.is_multiple_of(2) && offset + 2 <= self.length, "a register inside the mapping");
        // SAFETY: checked above.
        unsafe { self.start.add(offset).cast::<u16>().write_volatile(value) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no borrow outlives the value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
