//! `log` and `logcat`: writing to the device's log and reading it.

use std::time::Duration;

use super::{Answer, Call, Outcome, Words};
use crate::device::Device;
use crate::logcat::{Action, Options};
use crate::logs::{Buffer, CAPACITY, Level};

/// How many entries are read at once.
const BATCH: usize = 1000;

pub fn log(device: &Device, pid: u32, args: &[&str]) -> Outcome {
    // Everything after the first word belongs to the message, whatever it looks like.
    let (mut level, mut tag, mut buffer, mut rest) = (Level::Info, "log", Buffer::Main, args);
    while let [option @ ("-p" | "-t" | "-b"), value, others @ ..] = rest {
        match *option {
            "-p" => {
                level = Level::parse(value)
                    .ok_or_else(|| format!("'{value}' is no level: use one of v d i w e f"))?;
            }
            "-b" => buffer = Buffer::parse(value).ok_or_else(|| format!("unknown buffer '{value}'"))?,
            _ => tag = value,
        }
        rest = others;
    }
    if rest.is_empty() {
        return Err("usage: log [-p LEVEL] [-t TAG] [-b BUFFER] MESSAGE".into());
    }
    device.log.add(buffer, level, tag, pid, &rest.join(" "));
    Ok(0)
}

pub fn logcat(device: &Device, call: &Call, to: &mut Answer) -> Outcome {
    if Words::parse(&call.args.iter().map(String::as_str).collect::<Vec<_>>(), &[])?.has("--help") {
        to.say("usage: logcat [-d] [-c] [-g] [-b BUFFER,...] [-v FORMAT] [-t N] [-T N|TIME] [-m N] [--pid PID] [-s] [TAG:LEVEL ...]\n")?;
        return Ok(0);
    }
    let options = Options::parse(&call.args, &call.tags)?;
    match options.action {
        Action::Clear => {
            device.log.clear(&options.buffers);
            return Ok(0);
        }
        Action::Sizes => {
            for buffer in &options.buffers {
                let (size, used) = (CAPACITY / 1024, device.log.size(*buffer) / 1024);
                to.say(&format!("{}: ring buffer is {size} KiB ({used} KiB consumed)\n", buffer.name()))?;
            }
            return Ok(0);
        }
        Action::Show => {}
    }
    let mut shown = Shown { begun: Vec::new(), left: options.count.unwrap_or(usize::MAX) };
    let mut present = device.log.after(0, &options.buffers, usize::MAX);
    let mut last = present.last().map_or(0, |entry| entry.number);
    present.retain(|entry| options.passes(entry));
    let from = options.tail.map_or(0, |tail| present.len().saturating_sub(tail));
    shown.write(&options, &present[from..], to)?;
    while !options.dump && shown.left > 0 {
        device.log.wait(last, Duration::from_millis(500));
        if to.is_abandoned() {
            return Ok(0);
        }
        // Entries of other buffers count as seen, or waiting for the next would end at once.
        let newest = device.log.last();
        let new = device.log.after(last, &options.buffers, BATCH);
        last = if new.len() < BATCH { newest } else { last }.max(new.last().map_or(0, |entry| entry.number));
        let new: Vec<_> = new.into_iter().filter(|entry| options.passes(entry)).collect();
        shown.write(&options, &new, to)?;
    }
    Ok(0)
}

struct Shown {
    begun: Vec<Buffer>,
    left: usize,
}

impl Shown {
    fn write(
        &mut self,
        options: &Options,
        entries: &[crate::logs::Entry],
        to: &mut Answer,
    ) -> std::io::Result<()> {
        let mut text = String::new();
        for entry in entries.iter().take(self.left) {
            if !self.begun.contains(&entry.buffer) {
                self.begun.push(entry.buffer);
                text += &format!("--------- beginning of {}\n", entry.buffer.name());
            }
            text += &options.write(entry);
            if text.len() > 64 * 1024 {
                to.say(&std::mem::take(&mut text))?;
            }
        }
        self.left = self.left.saturating_sub(entries.len());
        if text.is_empty() { Ok(()) } else { to.say(&text) }
    }
}
