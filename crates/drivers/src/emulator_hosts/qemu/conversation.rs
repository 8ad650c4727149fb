//! Lines of JSON over a socket: questions with numbers, their answers, and what the other side tells unasked.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// A device may be hostile: a line that never ends must not fill our memory.
const LONGEST_LINE: usize = 2 << 20;
/// Who tells more than is listened to loses the rest; states are asked for again anyway.
const EVENTS: usize = 256;

#[derive(Debug)]
pub enum Trouble {
    /// Nobody is there any more.
    Gone,
    /// No answer came in time. The question stays asked.
    Silent,
    /// The other side refuses.
    Refused(Value),
}

/// Our side. Clones speak over the same connection, which closes with the last of them.
#[derive(Clone)]
pub struct Conversation(mpsc::Sender<Question>);

struct Question {
    request: Value,
    answer: oneshot::Sender<Value>,
}

/// Connects to a socket in a folder, however long the folder's path is.
pub async fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let handle = File::open(folder)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd())).await
}

impl Conversation {
    /// The events end when the other side does.
    pub fn start(stream: UnixStream) -> (Conversation, mpsc::Receiver<Value>) {
        let (sender, questions) = mpsc::channel(16);
        let (events, heard) = mpsc::channel(EVENTS);
        tokio::spawn(converse(stream, questions, events));
        (Conversation(sender), heard)
    }

    pub async fn ask(&self, request: Value, patience: Duration) -> Result<Value, Trouble> {
        let (answer, answered) = oneshot::channel();
        let ask = async {
            self.0.send(Question { request, answer }).await.map_err(|_| Trouble::Gone)?;
            answered.await.map_err(|_| Trouble::Gone)
        };
        timeout(patience, ask).await.map_err(|_| Trouble::Silent)?
    }
}

async fn converse(stream: UnixStream, mut questions: mpsc::Receiver<Question>, events: mpsc::Sender<Value>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut waiting: HashMap<u64, oneshot::Sender<Value>> = HashMap::new();
    let (mut next, mut line) = (0u64, Vec::new());
    loop {
        tokio::select! {
            question = questions.recv() => {
                let Some(Question { mut request, answer }) = question else { return };
                next += 1;
                request["id"] = next.into();
                waiting.retain(|_, answer| !answer.is_closed());
                waiting.insert(next, answer);
                if writer.write_all(format!("{request}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
            read = read_line(&mut reader, &mut line) => {
                if !read.unwrap_or(false) {
                    return;
                }
                let heard: Option<Value> = serde_json::from_slice(&line).ok();
                line.clear();
                let Some(heard) = heard else { continue };
                match heard.get("id").and_then(Value::as_u64) {
                    Some(id) => drop(waiting.remove(&id).map(|answer| answer.send(heard))),
                    None => drop(events.try_send(heard)),
                }
            }
        }
    }
}

/// Whether there was another line. May be broken off and called again: what was read is in `line`.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let piece = reader.fill_buf().await?;
        if piece.is_empty() {
            return Ok(false);
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(piece.len(), |end| end + 1);
        line.extend_from_slice(&piece[..length]);
        reader.consume(length);
        if end.is_some() {
            return Ok(true);
        }
        if line.len() > LONGEST_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line without end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn answers_find_their_questions_and_events_come_through() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (conversation, mut events) = Conversation::start(ours);
        let other_side = tokio::spawn(async move {
            let mut theirs = BufReader::new(theirs);
            let mut lines = [Vec::new(), Vec::new()];
            for line in &mut lines {
                assert!(read_line(&mut theirs, line).await.expect("a line"));
            }
            let asked = lines.map(|line| serde_json::from_slice::<Value>(&line).expect("JSON"));
            let text = format!(
                "{{\"event\":\"x\"}}\nnot JSON\n{}\n{}\n",
                json!({"id": asked[1]["id"], "ok": asked[1]["n"]}),
                json!({"id": asked[0]["id"], "ok": asked[0]["n"]}),
            );
            theirs.get_mut().write_all(text.as_bytes()).await.expect("written");
        });

        let patience = Duration::from_secs(5);
        let (one, two) = tokio::join!(
            conversation.ask(json!({"n": 1}), patience),
            conversation.ask(json!({"n": 2}), patience)
        );

        assert_eq!(one.expect("an answer")["ok"], 1);
        assert_eq!(two.expect("an answer")["ok"], 2);
        assert_eq!(events.recv().await, Some(json!({"event": "x"})));
        other_side.await.expect("the other side");
        assert_eq!(events.recv().await, None);
        assert!(matches!(conversation.ask(json!({}), patience).await, Err(Trouble::Gone)));
    }

    #[tokio::test]
    async fn a_line_without_end_ends_the_conversation() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (_conversation, mut events) = Conversation::start(ours);
        let endless = tokio::spawn(async move { while theirs.write_all(&[b'x'; 4096]).await.is_ok() {} });

        assert_eq!(events.recv().await, None);
        endless.await.expect("the other side ended too");
    }
}
