//! A listener on this very machine that waits for the browser to come back, once.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const LONGEST_REQUEST: usize = 16 * 1024;
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Static, and without anything of what the browser brings.
const DONE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Paddock</title>\
    <p>The command line has its answer. You can close this page.</p></html>\n";

pub struct Loopback {
    listener: TcpListener,
    pub redirect_uri: String,
}

/// What the server tells by way of the browser.
pub type Told = HashMap<String, String>;

impl Loopback {
    pub async fn open() -> io::Result<Loopback> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let redirect_uri = format!("http://{}/callback", listener.local_addr()?);
        Ok(Loopback { listener, redirect_uri })
    }

    /// Waits for the one request that brings this state, answers it, and listens no more.
    pub async fn wait(self, state: &str) -> io::Result<Told> {
        let (tell, mut told) = mpsc::channel(1);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let (stream, _) = accepted?;
                    let (tell, state) = (tell.clone(), state.to_owned());
                    // Browsers open connections that they may never use; one must not hold up the other.
                    tokio::spawn(async move {
                        if let Ok(Ok(Some(told))) = tokio::time::timeout(REQUEST_TIME, answer(stream, &state)).await {
                            let _ = tell.send(told).await;
                        }
                    });
                }
                Some(told) = told.recv() => return Ok(told),
            }
        }
    }
}

async fn answer(mut stream: TcpStream, state: &str) -> io::Result<Option<Told>> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 2048];
        let length = stream.read(&mut part).await?;
        if length == 0 || request.len() > LONGEST_REQUEST {
            return Ok(None);
        }
        request.extend_from_slice(&part[..length]);
    }
    let told = read_callback(&request, state);
    let (status, body) = if told.is_some() { ("200 OK", DONE) } else { ("404 Not Found", "") };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'; frame-ancestors 'none'\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(told)
}

fn read_callback(request: &[u8], state: &str) -> Option<Told> {
    let line = std::str::from_utf8(request.split(|byte| *byte == b'\r').next()?).ok()?;
    let query = line.strip_prefix("GET /callback?")?.split(' ').next()?;
    let told: Told = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    (told.get("state").map(String::as_str) == Some(state)).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::read_callback;

    #[test]
    fn only_the_answer_to_our_own_question_is_taken() {
        for (request, taken) in [
            ("GET /callback?code=c&state=s HTTP/1.1\r\n\r\n", true),
            ("GET /callback?error=access_denied&state=s HTTP/1.1\r\n\r\n", true),
            ("GET /callback?code=c&state=other HTTP/1.1\r\n\r\n", false),
            ("GET /callback?code=c HTTP/1.1\r\n\r\n", false),
            ("POST /callback?code=c&state=s HTTP/1.1\r\n\r\n", false),
            ("GET /favicon.ico HTTP/1.1\r\n\r\n", false),
            ("", false),
        ] {
            assert_eq!(read_callback(request.as_bytes(), "s").is_some(), taken, "{request}");
        }
    }
}
