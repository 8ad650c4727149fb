//! Streams, as a client opens and carries them.

use http::{HeaderValue, Method, StatusCode, header};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::{Client, Error, Result, encode};
use crate::frames::{self, BINARY, Decoder, LONGEST_HEADER, PONG, Piece};
use crate::tickets::{Ticket, TicketSpec};

/// An open stream.
pub struct Stream(reqwest::Upgraded);

/// How a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The local side has closed it.
    Here,
    /// The server has closed it, with this code.
    There(u16),
    /// The connection broke.
    Broken,
}

const BUFFER: usize = 64 << 10;

impl Client {
    /// Opens a way to the device's ADB.
    pub async fn connect_adb(&self, emulator: &str) -> Result<Stream> {
        self.connect(&format!("/api/v1/emulators/{}/adb/proxy", encode(emulator)), "adb.paddock.v1").await
    }

    /// A ticket for one stream, for a browser to open.
    pub async fn create_ticket(&self, emulator: &str, spec: &TicketSpec) -> Result<Ticket> {
        Ok(self.create(&format!("/api/v1/emulators/{}/tickets", encode(emulator)), Some(spec)).await?.value)
    }

    async fn connect(&self, path: &str, protocol: &'static str) -> Result<Stream> {
        let mut request = self
            .http
            .request(Method::GET, self.url(path))
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, nonce()?)
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token.clone());
        }
        let answer = request.send().await.map_err(Error::Unreachable)?;
        let status = answer.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = answer.bytes().await.map_err(Error::Unreachable)?;
            return Err(serde_json::from_slice(&body)
                .map_or(Error::Foreign(status), |problem| Error::Refused(Box::new(problem))));
        }
        // What stands in between must not have answered in the server's place.
        let chosen = answer.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
        if chosen != Some(&HeaderValue::from_static(protocol)) {
            return Err(Error::Foreign(status));
        }
        answer.upgrade().await.map(Stream).map_err(Error::Unreachable)
    }
}

impl Stream {
    /// Carries bytes both ways until one side ends.
    pub async fn carry(self, local: impl AsyncRead + AsyncWrite) -> Ended {
        let (mut from_server, mut to_server) = tokio::io::split(self.0);
        let (mut from_local, mut to_local) = tokio::io::split(local);
        // An answer that waits makes a second one needless.
        let (ask, asked) = mpsc::channel(1);
        let ended = tokio::select! {
            ended = up(&mut from_local, &mut to_server, asked) => ended,
            ended = down(&mut from_server, &mut to_local, ask) => ended,
        };
        let _ = to_local.shutdown().await;
        if ended == Ended::Here
            && let Ok(key) = key()
        {
            let _ = to_server.write_all(&frames::close_frame(1000, "", Some(key))).await;
        }
        let _ = to_server.shutdown().await;
        ended
    }
}

async fn up<L, S>(
    local: &mut ReadHalf<L>,
    server: &mut WriteHalf<S>,
    mut pongs: mpsc::Receiver<Vec<u8>>,
) -> Ended
where
    L: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let sent = tokio::select! {
            read = local.read(&mut buffer[LONGEST_HEADER..]) => {
                let (Ok(read @ 1..), Ok(key)) = (read, key()) else { return Ended::Here };
                let end = LONGEST_HEADER + read;
                let start = frames::put(&mut buffer[..end], LONGEST_HEADER, BINARY, Some(key));
                server.write_all(&buffer[start..end]).await
            }
            Some(content) = pongs.recv() => {
                let Ok(key) = key() else { return Ended::Here };
                server.write_all(&frames::control_frame(PONG, &content, Some(key))).await
            }
        };
        if sent.is_err() || server.flush().await.is_err() {
            return Ended::Broken;
        }
    }
}

async fn down<L, S>(server: &mut ReadHalf<S>, local: &mut WriteHalf<L>, pongs: mpsc::Sender<Vec<u8>>) -> Ended
where
    L: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let mut decoder = Decoder::of_server();
    let mut buffer = vec![0; BUFFER];
    let mut waiting = 0;
    loop {
        let Ok(read @ 1..) = server.read(&mut buffer[waiting..]).await else { return Ended::Broken };
        let (mut start, end) = (0, waiting + read);
        loop {
            match decoder.read(&mut buffer[start..end]) {
                Ok(Some((used, piece))) => {
                    match piece {
                        Piece::Data(range) => {
                            let bytes = &buffer[start + range.start..start + range.end];
                            if local.write_all(bytes).await.is_err() {
                                return Ended::Here;
                            }
                        }
                        Piece::Ping(content) => drop(pongs.try_send(content)),
                        Piece::Pong => {}
                        Piece::Close(code) => return Ended::There(code.unwrap_or(1005)),
                    }
                    start += used;
                }
                Ok(None) => break,
                Err(_) => return Ended::Broken,
            }
        }
        buffer.copy_within(start..end, 0);
        waiting = end - start;
    }
}

/// Sixteen bytes in base64, of which hexadecimal digits are a part.
fn nonce() -> Result<String> {
    let mut bytes = [0; 16];
    let failed = |_| Error::Setup("the system gives no random numbers".to_owned());
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(format!("{}A==", &format!("{:032x}", u128::from_be_bytes(bytes))[..21]))
}

/// A mask that nobody can guess, as every frame of a client needs one.
fn key() -> Result<[u8; 4]> {
    let mut key = [0; 4];
    let failed = |_| Error::Setup("the system gives no random numbers".to_owned());
    SystemRandom::new().fill(&mut key).map_err(failed)?;
    Ok(key)
}
