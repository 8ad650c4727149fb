//! Shells: commands and terminals, in the plain form and in the one with exit codes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::Winsize;

use super::connection::{Reader, Stream, Writer};
use super::services::copy;
use crate::device::Device;
use crate::kernel;

/// What a host asked for, `shell,v2,TERM=xterm,pty:command`.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    command: String,
    term: Option<String>,
    terminal: bool,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Bytes as they come, standard error mixed in.
    Plain,
    /// Packets that tell the streams apart and end with the exit code.
    Packets,
}

impl Request {
    pub fn parse(service: &str) -> Option<Request> {
        let (head, command) = service.split_once(':')?;
        let mut options = head.split(',');
        let kind = options.next()?;
        let mut request = Request {
            command: command.to_owned(),
            term: None,
            terminal: command.is_empty(),
            form: Form::Plain,
        };
        match kind {
            "shell" => {}
            "exec" => {
                request.terminal = false;
                return Some(request);
            }
            _ => return None,
        }
        for option in options {
            match option.split_once('=') {
                Some(("TERM", term)) => request.term = Some(term.to_owned()),
                None if option == "v2" => request.form = Form::Packets,
                None if option == "pty" => request.terminal = true,
                None if option == "raw" => request.terminal = false,
                _ => {}
            }
        }
        Some(request)
    }
}

/// The kinds of packets in the form with exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Stdin = 0,
    Stdout = 1,
    Stderr = 2,
    Exit = 3,
    CloseStdin = 4,
    WindowSize = 5,
}

/// More than a host sends in one packet, and little enough to keep.
const MAX_PACKET: usize = 1024 * 1024;

pub fn write_packet(to: &mut impl Write, kind: Kind, data: &[u8]) -> io::Result<()> {
    let mut packet = Vec::with_capacity(5 + data.len());
    packet.push(kind as u8);
    packet.extend_from_slice(&(data.len() as u32).to_le_bytes());
    packet.extend_from_slice(data);
    to.write_all(&packet)
}

/// The next packet, or nothing at the end of the stream. Unknown kinds are left out, as adbd does.
pub fn read_packet(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    loop {
        let mut head = [0; 5];
        match from.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MAX_PACKET {
            return Err(super::packet::invalid("a shell packet is too long"));
        }
        let mut data = vec![0; length];
        from.read_exact(&mut data)?;
        let kind = match head[0] {
            0 => Kind::Stdin,
            1 => Kind::Stdout,
            2 => Kind::Stderr,
            3 => Kind::Exit,
            4 => Kind::CloseStdin,
            5 => Kind::WindowSize,
            _ => continue,
        };
        return Ok(Some((kind, data)));
    }
}

/// `ROWSxCOLUMNS,WIDTHxHEIGHT`
fn parse_window_size(text: &[u8]) -> Option<Winsize> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\0');
    let (cells, pixels) = text.split_once(',')?;
    let ((rows, columns), (width, height)) = (cells.split_once('x')?, pixels.split_once('x')?);
    Some(Winsize {
        ws_row: rows.parse().ok()?,
        ws_col: columns.parse().ok()?,
        ws_xpixel: width.parse().ok()?,
        ws_ypixel: height.parse().ok()?,
    })
}

/// Runs the command or the terminal until it ends or the host leaves.
pub fn serve(device: &Arc<Device>, stream: &Arc<Stream>, request: &Request) -> io::Result<()> {
    let mut command = device.shell(&request.command);
    if let Some(term) = &request.term {
        command.env("TERM", term);
    }
    let started = if request.terminal { start_terminal(command) } else { start_pipes(command, request.form) };
    stream.accept()?;
    let session = match started {
        Ok(session) => session,
        Err(error) => {
            let message = format!("cannot start the shell: {error}\n");
            return match request.form {
                Form::Plain => stream.writer().write_all(message.as_bytes()),
                Form::Packets => {
                    write_packet(&mut stream.writer(), Kind::Stderr, message.as_bytes())?;
                    write_packet(&mut stream.writer(), Kind::Exit, &[127])
                }
            };
        }
    };
    session.run(stream, request)
}

struct Session {
    child: Arc<Mutex<Child>>,
    stdin: Option<File>,
    outputs: Vec<(Kind, File)>,
    /// The terminal's other side, if there is one.
    terminal: Option<File>,
}

fn start_pipes(mut command: Command, form: Form) -> io::Result<Session> {
    let (stdout, child_stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut outputs = vec![(Kind::Stdout, File::from(stdout))];
    let child_stderr = match form {
        Form::Plain => child_stdout.try_clone()?,
        Form::Packets => {
            let (stderr, child_stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            outputs.push((Kind::Stderr, File::from(stderr)));
            child_stderr
        }
    };
    command.stdin(Stdio::piped()).stdout(child_stdout).stderr(child_stderr);
    let mut child = command.spawn()?;
    let stdin = child.stdin.take().map(|stdin| File::from(OwnedFd::from(stdin)));
    Ok(Session { child: Arc::new(Mutex::new(child)), stdin, outputs, terminal: None })
}

fn start_terminal(mut command: Command) -> io::Result<Session> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(
        name.as_c_str(),
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
    kernel::lead_session(&mut command);
    let child = command.spawn()?;
    let master = File::from(master);
    let outputs = vec![(Kind::Stdout, master.try_clone()?)];
    let stdin = Some(master.try_clone()?);
    Ok(Session { child: Arc::new(Mutex::new(child)), stdin, outputs, terminal: Some(master) })
}

impl Session {
    fn run(self, stream: &Arc<Stream>, request: &Request) -> io::Result<()> {
        let Session { child, stdin, outputs, terminal } = self;
        let pid = child.lock().unwrap_or_else(PoisonError::into_inner).id();
        let input = Input { reader: stream.reader(), stdin, terminal, form: request.form };
        let (watched, hangs_up) = (child.clone(), request.form == Form::Packets || request.terminal);
        let left = stream.clone();
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            input.carry();
            if hangs_up && left.is_closed() {
                hang_up(&watched);
            }
        })?;
        let mut others = outputs;
        let first = others.remove(0);
        let writer = Arc::new(Mutex::new(stream.writer()));
        let threads: Vec<JoinHandle<()>> = others
            .into_iter()
            .filter_map(|output| {
                let (writer, form) = (writer.clone(), request.form);
                let thread = std::thread::Builder::new().name("stderr".to_owned());
                thread.spawn(move || carry_output(output, &writer, form)).ok()
            })
            .collect();
        carry_output(first, &writer, request.form);
        for thread in threads {
            let _ = thread.join();
        }
        let status = wait(&child, pid)?;
        if request.form == Form::Packets {
            // As a shell says it: 128 and the signal.
            let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            write_packet(&mut *writer, Kind::Exit, &[code as u8])?;
        }
        Ok(())
    }
}

/// Waits without holding the lock, so that the child can be hung up meanwhile, and never a successor of its number.
fn wait(child: &Mutex<Child>, pid: u32) -> io::Result<ExitStatus> {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    }
    child.lock().unwrap_or_else(PoisonError::into_inner).wait()
}

/// The host has left: tells the shell, as a closed terminal would. Its background jobs stay.
fn hang_up(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Ok(None), Some(pid)) = (child.try_wait(), i32::try_from(child.id()).ok().and_then(Pid::from_raw))
    {
        let _ = rustix::process::kill_process(pid, Signal::HUP);
    }
}

fn carry_output((kind, mut from): (Kind, File), writer: &Mutex<Writer>, form: Form) {
    // A terminal whose last user is gone ends with an error, not with an end of file; both are the end.
    let _ = copy(&mut from, &mut Output { kind, writer, form });
}

struct Output<'a> {
    kind: Kind,
    writer: &'a Mutex<Writer>,
    form: Form,
}

impl Write for Output<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match self.form {
            Form::Plain => writer.write_all(data)?,
            Form::Packets => write_packet(&mut *writer, self.kind, data)?,
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Input {
    reader: Reader,
    stdin: Option<File>,
    terminal: Option<File>,
    form: Form,
}

impl Input {
    /// Carries what the host sends until it leaves.
    fn carry(mut self) {
        if self.form == Form::Plain {
            if let Some(mut stdin) = self.stdin.take() {
                let _ = copy(&mut self.reader, &mut stdin);
            }
            return self.drain();
        }
        while let Ok(Some((kind, data))) = read_packet(&mut self.reader) {
            match kind {
                Kind::Stdin => {
                    let gone = self.stdin.as_mut().is_some_and(|stdin| stdin.write_all(&data).is_err());
                    self.stdin = self.stdin.take().filter(|_| !gone);
                }
                // A terminal has no end of file; typing Ctrl-D is the user's way.
                Kind::CloseStdin if self.terminal.is_none() => self.stdin = None,
                Kind::WindowSize => {
                    if let (Some(terminal), Some(size)) = (&self.terminal, parse_window_size(&data)) {
                        let _ = rustix::termios::tcsetwinsize(terminal.as_fd(), size);
                    }
                }
                _ => {}
            }
        }
    }

    /// The command no longer reads, but the host may still write: it must not wait for us.
    fn drain(&mut self) {
        let _ = copy(&mut self.reader, &mut io::sink());
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, Kind, Request, parse_window_size, read_packet, write_packet};

    #[test]
    fn a_service_name_says_how_the_shell_is_wanted() {
        let request = |command: &str, term: Option<&str>, terminal, form| {
            Some(Request { command: command.to_owned(), term: term.map(str::to_owned), terminal, form })
        };
        for (service, wanted) in [
            ("shell:", request("", None, true, Form::Plain)),
            ("shell:ls -l", request("ls -l", None, false, Form::Plain)),
            ("shell,v2:echo a:b", request("echo a:b", None, false, Form::Packets)),
            ("shell,v2,TERM=xterm-256color,pty:", request("", Some("xterm-256color"), true, Form::Packets)),
            ("shell,v2,raw:", request("", None, false, Form::Packets)),
            ("shell,TERM=dumb,new:top", request("top", Some("dumb"), false, Form::Plain)),
            ("exec:cat", request("cat", None, false, Form::Plain)),
            ("exec:", request("", None, false, Form::Plain)),
            ("shells:ls", None),
            ("shell", None),
            ("", None),
        ] {
            assert_eq!(Request::parse(service), wanted, "{service}");
        }
    }

    #[test]
    fn a_window_size_is_rows_columns_and_pixels() {
        let size = parse_window_size(b"24x80,640x480\0").expect("a size");
        assert_eq!((size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel), (24, 80, 640, 480));
        for text in ["", "24x80", "24,80", "-1x80,0x0", "24x80,0", "99999x1,0x0", "axb,cxd"] {
            assert!(parse_window_size(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn shell_packets_survive_the_way_and_unknown_ones_are_left_out() {
        let mut wire = vec![9, 1, 0, 0, 0, b'?'];
        write_packet(&mut wire, Kind::Stderr, b"oops").expect("memory");

        let mut from = wire.as_slice();

        assert_eq!(read_packet(&mut from).expect("packets"), Some((Kind::Stderr, b"oops".to_vec())));
        assert_eq!(read_packet(&mut from).expect("packets"), None);
    }

    #[test]
    fn a_shell_packet_that_claims_to_be_huge_is_refused() {
        let error = read_packet(&mut [0u8, 0xff, 0xff, 0xff, 0xff].as_slice()).expect_err("too long");
        assert_eq!(error.to_string(), "a shell packet is too long");
    }
}
