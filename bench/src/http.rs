//! One plain HTTP exchange, for setting up and for checking; load is wrk's business.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Much of what is set up takes seconds where others use the machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

pub fn get(address: SocketAddr, path: &str, token: &str) -> Result<Answer> {
    let answer = exchange(
        address,
        &format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        ),
    )
    .with_context(|| format!("GET {path}"))?;
    ensure!(answer.status == 200, "GET {path} answered {}: {}", answer.status, answer.body);
    Ok(answer)
}

pub fn post(address: SocketAddr, path: &str, token: &str, body: &str) -> Result<Answer> {
    let answer = exchange(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ),
    )
    .with_context(|| format!("POST {path}"))?;
    // 207: one result each for several.
    ensure!(
        matches!(answer.status, 200..=202 | 207),
        "POST {path} answered {}: {}",
        answer.status,
        answer.body
    );
    Ok(answer)
}

pub fn delete(address: SocketAddr, path: &str, token: &str) -> Result<Answer> {
    let request = format!(
        "DELETE {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    let answer = exchange(address, &request).with_context(|| format!("DELETE {path}"))?;
    ensure!(matches!(answer.status, 202 | 204), "DELETE {path} answered {}: {}", answer.status, answer.body);
    Ok(answer)
}

fn exchange(address: SocketAddr, request: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    parse(&text)
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no end of its headers")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let content_type = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map_or_else(String::new, |(_, value)| value.trim().to_owned());
    Ok(Answer { status: status.context("the answer has no status")?, content_type, body: body.to_owned() })
}

/// An address that nobody listens on at this moment.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_status_its_type_and_its_body() {
        let answer = parse("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: x\r\n\r\n{\"a\":1}")
            .expect("an answer");

        assert_eq!((answer.status, answer.content_type.as_str()), (200, "application/json"));
        assert_eq!(answer.body, "{\"a\":1}");
        assert!(parse("HTTP/1.1 200").is_err());
    }
}
