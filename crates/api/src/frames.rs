//! WebSocket frames (RFC 6455) that carry one stream of bytes: read as they arrive, written where the bytes already are.
//!
//! A library would collect whole messages, and copy each. Here no message means anything, so nothing is collected:
//! however large a frame, as much of it as has come goes on. There is no I/O in here.

use std::ops::Range;

/// The longest header that stands before a frame's content.
pub const LONGEST_HEADER: usize = 14;
/// The longest content of a frame that says something about the connection.
pub const LONGEST_CONTROL: usize = 125;
/// A frame that announces more is refused.
pub const LARGEST_FRAME: u64 = 16 << 20;

pub const BINARY: u8 = 0x2;
pub const CLOSE: u8 = 0x8;
pub const PING: u8 = 0x9;
pub const PONG: u8 = 0xa;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;

/// What the other side has done wrong, as the code that closes the connection, and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(pub u16, pub &'static str);

const fn broken(words: &'static str) -> Violation {
    Violation(1002, words)
}

/// What was found in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the stream; here they are in the input, unmasked.
    Data(Range<usize>),
    Ping(Vec<u8>),
    Pong,
    /// With the code, if one was given.
    Close(Option<u16>),
}

/// Reads one side's frames.
#[derive(Debug)]
pub struct Decoder {
    masked: bool,
    in_message: bool,
    content: Option<Content>,
}

/// What is still to come of a frame of data.
#[derive(Debug)]
struct Content {
    left: u64,
    mask: [u8; 4],
}

struct Header {
    length: usize,
    last: bool,
    kind: u8,
    content: u64,
    mask: [u8; 4],
}

impl Decoder {
    /// For what clients send, which is masked.
    pub const fn of_client() -> Self {
        Decoder { masked: true, in_message: false, content: None }
    }

    /// For what servers send, which is not.
    pub const fn of_server() -> Self {
        Decoder { masked: false, in_message: false, content: None }
    }

    /// What the input begins with, and how much of the input that was; nothing if more has to come first.
    pub fn read(&mut self, input: &mut [u8]) -> Result<Option<(usize, Piece)>, Violation> {
        if let Some(content) = &mut self.content {
            if input.is_empty() {
                return Ok(None);
            }
            let here = usize::try_from(content.left).unwrap_or(usize::MAX).min(input.len());
            content.take(&mut input[..here]);
            if content.left == 0 {
                self.content = None;
            }
            return Ok(Some((here, Piece::Data(0..here))));
        }
        let Some(header) = self.header(input)? else { return Ok(None) };
        if header.kind >= CLOSE {
            let end = header.length + header.content as usize;
            if input.len() < end {
                return Ok(None);
            }
            let content = &mut input[header.length..end];
            mask(content, header.mask);
            return Ok(Some((end, control(header.kind, content)?)));
        }
        self.in_message = !header.last;
        let mut content = Content { left: header.content, mask: header.mask };
        let here = usize::try_from(content.left).unwrap_or(usize::MAX).min(input.len() - header.length);
        let end = header.length + here;
        content.take(&mut input[header.length..end]);
        self.content = (content.left > 0).then_some(content);
        Ok(Some((end, Piece::Data(header.length..end))))
    }

    fn header(&self, input: &[u8]) -> Result<Option<Header>, Violation> {
        let [first, second, ..] = *input else { return Ok(None) };
        let (last, kind) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(broken("a reserved bit is set"));
        }
        match (kind, self.in_message) {
            (BINARY, false) | (CONTINUATION, true) => {}
            (TEXT, _) => return Err(Violation(1003, "only binary frames are taken")),
            (CLOSE | PING | PONG, _) if last => {}
            _ => return Err(broken("a frame of this kind cannot stand here")),
        }
        if (second & 0x80 != 0) != self.masked {
            return Err(broken("a client's frames are masked, a server's are not"));
        }
        let (extra, short) = match second & 0x7f {
            126 => (2, None),
            127 => (8, None),
            short => (0, Some(u64::from(short))),
        };
        if kind >= CLOSE && short.is_none() {
            return Err(broken("a frame about the connection is too long"));
        }
        let length = 2 + extra + if self.masked { 4 } else { 0 };
        let Some(header) = input.get(..length) else { return Ok(None) };
        let content = short.unwrap_or_else(|| {
            header[2..2 + extra].iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
        });
        if content > LARGEST_FRAME {
            return Err(Violation(1009, "a frame is too large"));
        }
        let mut mask = [0; 4];
        if self.masked {
            mask.copy_from_slice(&header[length - 4..]);
        }
        Ok(Some(Header { length, last, kind, content, mask }))
    }
}

impl Content {
    fn take(&mut self, bytes: &mut [u8]) {
        mask(bytes, self.mask);
        self.mask.rotate_left(bytes.len() % 4);
        self.left -= bytes.len() as u64;
    }
}

fn control(kind: u8, content: &[u8]) -> Result<Piece, Violation> {
    match (kind, content) {
        (PING, _) => Ok(Piece::Ping(content.to_vec())),
        (PONG, _) => Ok(Piece::Pong),
        (_, []) => Ok(Piece::Close(None)),
        (_, [high, low, ..]) => match u16::from_be_bytes([*high, *low]) {
            code @ (1000..=1003 | 1007..=1014 | 3000..=4999) => Ok(Piece::Close(Some(code))),
            _ => Err(broken("this code closes nothing")),
        },
        (_, [_]) => Err(broken("this code closes nothing")),
    }
}

/// Masks bytes, or takes the mask away again.
fn mask(bytes: &mut [u8], mask: [u8; 4]) {
    if mask == [0; 4] {
        return;
    }
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = bytes.chunks_exact_mut(8);
    for chunk in &mut words {
        // Always eight; written so that nothing can panic, it compiles to wide instructions.
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(eight) ^ word).to_ne_bytes());
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// What stands before a content of this length that is not masked.
pub fn header(kind: u8, length: u64) -> Vec<u8> {
    let mut header = vec![0x80 | kind];
    match length {
        0..=125 => header.push(length as u8),
        126..=0xffff => {
            header.push(126);
            header.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            header.push(127);
            header.extend_from_slice(&length.to_be_bytes());
        }
    }
    header
}

/// Makes a frame of the content that begins at `at` in a buffer, with the header right before it; returns where the frame begins.
/// There must be room for [`LONGEST_HEADER`] before the content. A client gives a fresh, unpredictable mask.
pub fn put(buffer: &mut [u8], at: usize, kind: u8, key: Option<[u8; 4]>) -> usize {
    let mut header = header(kind, (buffer.len() - at) as u64);
    if let Some(key) = key {
        header[1] |= 0x80;
        header.extend_from_slice(&key);
        mask(&mut buffer[at..], key);
    }
    let start = at - header.len();
    buffer[start..at].copy_from_slice(&header);
    start
}

/// A frame about the connection, on its own.
pub fn control_frame(kind: u8, content: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let mut buffer = vec![0; LONGEST_HEADER];
    buffer.extend_from_slice(&content[..content.len().min(LONGEST_CONTROL)]);
    let start = put(&mut buffer, LONGEST_HEADER, kind, key);
    buffer.drain(..start);
    buffer
}

/// A frame that closes the connection, with the reason in words.
pub fn close_frame(code: u16, reason: &str, key: Option<[u8; 4]>) -> Vec<u8> {
    let mut content = code.to_be_bytes().to_vec();
    content.extend_from_slice(reason.as_bytes());
    control_frame(CLOSE, &content, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, content: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
        let mut buffer = [&[0; LONGEST_HEADER][..], content].concat();
        let start = put(&mut buffer, LONGEST_HEADER, 0, key);
        buffer[start] = first;
        buffer.split_off(start)
    }

    /// Everything that a decoder makes of a text that comes in pieces of this size.
    fn decode(mut decoder: Decoder, text: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<Piece>), Violation> {
        let (mut data, mut others, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for piece in text.chunks(piece) {
            waiting.extend_from_slice(piece);
            while let Some((used, event)) = decoder.read(&mut waiting)? {
                match event {
                    Piece::Data(range) => data.extend_from_slice(&waiting[range]),
                    other => others.push(other),
                }
                waiting.drain(..used);
            }
        }
        Ok((data, others))
    }

    #[test]
    fn a_stream_comes_out_as_it_went_in_however_it_is_cut() {
        let key = Some([1, 0xfe, 0, 77]);
        let content: Vec<u8> = (0..70_000u32).map(|number| ((number * 7) >> 3) as u8).collect();
        let mut text = Vec::new();
        text.extend(frame(0x82, &content[..5], key));
        // One message in three frames, with a question between them.
        text.extend(frame(0x02, &content[5..200], key));
        text.extend(frame(0x89, b"there?", key));
        text.extend(frame(0x00, &[], key));
        text.extend(frame(0x80, &content[200..66_000], key));
        text.extend(frame(0x82, &content[66_000..], key));
        text.extend(frame(0x8a, b"", key));
        text.extend(close_frame(4000, "enough", key));
        for piece in [1, 2, 3, 13, 64, 1000, 65_537, 1 << 20] {
            let (data, events) = decode(Decoder::of_client(), &text, piece).expect("a good stream");
            assert!(data == content, "{piece}");
            assert_eq!(events, [Piece::Ping(b"there?".to_vec()), Piece::Pong, Piece::Close(Some(4000))]);
        }
    }

    #[test]
    fn a_servers_frames_are_read_without_a_mask() {
        let text = [frame(0x82, &[7; 300], None), close_frame(1001, "", None)].concat();
        let (data, events) = decode(Decoder::of_server(), &text, 100).expect("a good stream");
        assert_eq!((data, events), (vec![7; 300], vec![Piece::Close(Some(1001))]));
    }

    #[test]
    fn what_breaks_the_rules_is_refused_with_the_right_code() {
        let key = Some([1, 2, 3, 4]);
        let huge = [&[0x82, 0xff][..], &(LARGEST_FRAME + 1).to_be_bytes(), &[1, 2, 3, 4]].concat();
        for (text, code) in [
            (frame(0x81, b"text", key), 1003),
            (huge, 1009),
            (frame(0x82, b"unmasked", None), 1002),
            (frame(0xc2, b"reserved", key), 1002),
            (frame(0x83, b"unknown", key), 1002),
            (frame(0x80, b"nothing to continue", key), 1002),
            ([frame(0x02, b"a", key), frame(0x82, b"b", key)].concat(), 1002),
            (frame(0x09, b"a part of a ping", key), 1002),
            (frame(0x89, &[0; 126], key), 1002),
            (frame(0x88, &[3], key), 1002),
            (frame(0x88, &1005u16.to_be_bytes(), key), 1002),
        ] {
            assert_eq!(
                decode(Decoder::of_client(), &text, 1 << 20).map_err(|found| found.0),
                Err(code),
                "{text:x?}"
            );
        }
    }

    /// No text makes it panic or believe that it has read more than there is.
    #[test]
    fn noise_does_no_harm() {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        for _ in 0..20_000 {
            let length = usize::from(next()) % 40;
            let text: Vec<u8> = (0..length).map(|_| next()).collect();
            for decoder in [Decoder::of_client(), Decoder::of_server()] {
                let _ = decode(decoder, &text, 1 + usize::from(next()) % 7);
            }
        }
    }
}
