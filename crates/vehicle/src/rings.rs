//! Rings: messages that are made once and read by many, each at its own pace, the slow ones at their own risk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::sync::watch;

/// So far a reader may fall behind.
const MOST_MESSAGES: usize = 1024;
const MOST_BYTES: usize = 4 << 20;

/// Why there is nothing more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The reader was too slow, and what it has not read is gone.
    Behind,
    /// Nobody will write any more.
    Closed,
}

/// A message as gRPC frames it.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = begin_frame(length);
    // There is room for it, which is all that could be missing.
    let _ = message.encode(&mut bytes);
    bytes.freeze()
}

/// What stands before a message of so many bytes.
pub fn begin_frame(length: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    bytes
}

pub struct Ring {
    kept: Mutex<Kept>,
    /// The number of the next message; closed when nothing follows.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    /// The number of the first that is here.
    first: u64,
    messages: VecDeque<Bytes>,
    bytes: usize,
    closed: bool,
}

impl Ring {
    pub fn new() -> Arc<Ring> {
        Arc::new(Ring { kept: Mutex::default(), next: watch::Sender::new(0) })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, message: Bytes) {
        let mut kept = self.kept();
        kept.bytes += message.len();
        kept.messages.push_back(message);
        while kept.messages.len() > MOST_MESSAGES || (kept.bytes > MOST_BYTES && kept.messages.len() > 1) {
            let gone = kept.messages.pop_front();
            kept.bytes -= gone.map_or(0, |gone| gone.len());
            kept.first += 1;
        }
        let next = kept.first + kept.messages.len() as u64;
        drop(kept);
        self.next.send_replace(next);
    }

    pub fn close(&self) {
        self.kept().closed = true;
        self.next.send_modify(|_| ());
    }

    /// Reads what is pushed from now on.
    pub fn reader(self: &Arc<Ring>) -> Reader {
        let told = self.next.subscribe();
        let kept = self.kept();
        Reader { next: kept.first + kept.messages.len() as u64, told, ring: self.clone() }
    }
}

pub struct Reader {
    ring: Arc<Ring>,
    next: u64,
    told: watch::Receiver<u64>,
}

impl Reader {
    pub async fn next(&mut self) -> Result<Bytes, Ended> {
        loop {
            // Before looking, so that what is pushed after the look wakes us.
            self.told.mark_unchanged();
            {
                let kept = self.ring.kept();
                let Some(index) = self.next.checked_sub(kept.first) else { return Err(Ended::Behind) };
                if let Some(message) = kept.messages.get(index as usize) {
                    self.next += 1;
                    return Ok(message.clone());
                }
                if kept.closed {
                    return Err(Ended::Closed);
                }
            }
            if self.told.changed().await.is_err() {
                return Err(Ended::Closed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_so_and_the_others_get_everything() {
        let ring = Ring::new();
        let (mut slow, mut quick) = (ring.reader(), ring.reader());
        for number in 0..=MOST_MESSAGES as u32 {
            ring.push(Bytes::copy_from_slice(&number.to_be_bytes()));
            assert_eq!(quick.next().await, Ok(Bytes::copy_from_slice(&number.to_be_bytes())));
        }
        assert_eq!(slow.next().await, Err(Ended::Behind));
        ring.close();
        assert_eq!(quick.next().await, Err(Ended::Closed));
    }

    #[test]
    fn large_messages_are_not_kept_in_thousands() {
        let ring = Ring::new();
        for _ in 0..64 {
            ring.push(Bytes::from(vec![0; 1 << 20]));
        }
        assert!(ring.kept().bytes <= MOST_BYTES);
    }
}
