//! As much of gRPC as a client needs: a message out, messages in, and how it ended.

use std::fmt;

use anyhow::{Context, Result, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use prost::Message;

/// Larger than any message of a car; a peer that announces more is none.
const MAX_MESSAGE: usize = 4 << 20;
const HEADER: usize = 5;
pub const UNIMPLEMENTED: i32 = 12;

/// A call that the other side refused.
#[derive(Debug)]
pub struct Refused {
    pub code: i32,
    message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the car refuses with gRPC status {} {}", self.code, self.message)
    }
}

impl std::error::Error for Refused {}

/// Calls a method; what comes back is read one message after the other.
pub async fn call(send: &SendRequest<Bytes>, path: &str, message: &impl Message) -> Result<Messages> {
    let request = Request::post(format!("http://vehicle{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let mut frame = BytesMut::with_capacity(HEADER + message.encoded_len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len())?);
    message.encode(&mut frame)?;
    let mut ready = send.clone().ready().await.context("the connection has ended")?;
    let (response, mut body) = ready.send_request(request, false)?;
    body.send_data(frame.freeze(), true)?;
    Ok(Messages { state: State::Waiting(response), buffer: BytesMut::new() })
}

/// A call that is answered once.
pub async fn ask<A: Message + Default>(
    send: &SendRequest<Bytes>,
    path: &str,
    message: &impl Message,
) -> Result<A> {
    let mut messages = call(send, path, message).await?;
    let answer = messages.next().await?.context("the car answered with nothing")?;
    while messages.next::<A>().await?.is_some() {}
    Ok(answer)
}

pub struct Messages {
    state: State,
    buffer: BytesMut,
}

enum State {
    Waiting(ResponseFuture),
    Reading(RecvStream),
}

impl Messages {
    /// Until the other side has taken the call up.
    pub async fn opened(&mut self) -> Result<()> {
        if let State::Waiting(response) = &mut self.state {
            let (head, body) = response.await?.into_parts();
            if head.status != 200 {
                bail!("no gRPC server: HTTP status {}", head.status);
            }
            // An error without any message comes in the headers.
            if head.headers.contains_key("grpc-status") {
                verdict(&head.headers)?;
            }
            self.state = State::Reading(body);
        }
        Ok(())
    }

    /// The next message, or nothing when all is said.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>> {
        self.opened().await?;
        let State::Reading(body) = &mut self.state else {
            bail!("the answer has not begun");
        };
        loop {
            if let Some(message) = framed(&mut self.buffer)? {
                return Ok(Some(M::decode(message)?));
            }
            match body.data().await {
                Some(data) => {
                    let data = data?;
                    body.flow_control().release_capacity(data.len())?;
                    self.buffer.extend_from_slice(&data);
                }
                None => {
                    let trailers = body.trailers().await?.context("the answer was cut off")?;
                    verdict(&trailers)?;
                    return Ok(None);
                }
            }
        }
    }
}

/// A whole message, if there is one yet.
fn framed(buffer: &mut BytesMut) -> Result<Option<Bytes>> {
    if buffer.len() < HEADER {
        return Ok(None);
    }
    if buffer[0] != 0 {
        bail!("a compressed message, which nobody asked for");
    }
    let length = (&buffer[1..HEADER]).get_u32() as usize;
    if length > MAX_MESSAGE {
        bail!("a message of {length} bytes");
    }
    if buffer.len() < HEADER + length {
        return Ok(None);
    }
    buffer.advance(HEADER);
    Ok(Some(buffer.split_to(length).freeze()))
}

fn verdict(headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status").parse().unwrap_or(2) {
        0 => Ok(()),
        code => Err(Refused { code, message: text("grpc-message").to_owned() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{CallStatus, Empty};
    use super::*;

    #[test]
    fn a_message_is_whole_or_not_there() {
        let mut buffer = BytesMut::new();
        for (more, message) in
            [(&b"\0\0\0"[..], None), (b"\0\x02a", None), (b"b\0\0\0\0\0", Some(&b"ab"[..])), (b"", Some(b""))]
        {
            buffer.extend_from_slice(more);
            assert_eq!(framed(&mut buffer).expect("frames").as_deref(), message);
        }
        assert!(framed(&mut BytesMut::from(&b"\x01\0\0\0\0"[..])).is_err());
        assert!(framed(&mut BytesMut::from(&b"\0\xff\xff\xff\xff"[..])).is_err());
    }

    /// Answers each call with the next of these, over a real connection.
    async fn server(stream: tokio::io::DuplexStream, answers: Vec<(Vec<&'static [u8]>, &'static str)>) {
        let mut connection = h2::server::handshake(stream).await.expect("a client");
        for (pieces, status) in answers {
            let (_, mut respond) = connection.accept().await.expect("a call").expect("a call");
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.parse().expect("a value"));
            let mut response = http::Response::new(());
            if pieces.is_empty() {
                *response.headers_mut() = trailers;
                respond.send_response(response, true).expect("sent");
                continue;
            }
            let mut body = respond.send_response(response, false).expect("sent");
            for piece in pieces {
                body.send_data(Bytes::from_static(piece), false).expect("sent");
            }
            body.send_trailers(trailers).expect("sent");
        }
        // Everything goes out while the connection is driven.
        while connection.accept().await.is_some() {}
    }

    #[test]
    fn a_call_ends_with_what_its_trailers_say() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(server(
                theirs,
                vec![
                    (vec![b"\0\0\0", b"\0\x02\x08\x03"], "0"),
                    (vec![], "12"),
                    (vec![b"\0\0\0\0\0"], "10"),
                    (vec![b"\0\0\0\0"], "0"),
                ],
            ));
            let (send, connection) = h2::client::handshake(ours).await.expect("a server");
            tokio::spawn(connection);
            let ask = || ask::<CallStatus>(&send, "/x", &Empty {});

            assert_eq!(ask().await.expect("an answer").status_code, 3);
            for code in [UNIMPLEMENTED, 10] {
                let error = ask().await.expect_err("refused");
                assert_eq!(error.downcast_ref::<Refused>().expect("a status").code, code);
            }
            assert!(ask().await.expect_err("cut off").downcast_ref::<Refused>().is_none());
        });
    }
}
