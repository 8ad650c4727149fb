//! The request id: in every answer, every problem document and every log line.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::extract::Request;
use http::{Extensions, HeaderName, HeaderValue};
use paddock_drivers::random::OsRandom;
use paddock_model::ports::Random;

pub static HEADER: HeaderName = HeaderName::from_static("x-request-id");

#[derive(Debug, Clone)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// The caller's own, if it is a decent one; otherwise a new one: this process, then a count.
    pub fn for_request(request: &Request) -> Self {
        static PROCESS: LazyLock<u32> = LazyLock::new(|| {
            let mut bytes = [0; 4];
            OsRandom::default().fill(&mut bytes);
            u32::from_be_bytes(bytes)
        });
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let given =
            request.headers().get(&HEADER).and_then(|value| value.to_str().ok()).filter(|id| is_decent(id));
        match given {
            Some(id) => RequestId(id.into()),
            None => RequestId(format!("{:08x}-{:x}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed)).into()),
        }
    }

    pub fn of(extensions: &Extensions) -> Arc<str> {
        extensions.get::<RequestId>().map_or_else(|| "unknown".into(), |id| id.0.clone())
    }

    /// Of a request that was not given one.
    pub fn unknown() -> Self {
        RequestId("unknown".into())
    }

    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_decent(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The trace that this request belongs to (W3C trace context), if it does.
pub fn trace_id(request: &Request) -> Option<&str> {
    let parent =
        request.headers().get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = parent.split('-');
    let (version, trace, span) =
        (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_hex = |text: &str, length| {
        text.len() == length
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|byte| byte != b'0')
    };
    let valid = version.is_some_and(|version| version.len() == 2 && version != "ff")
        && is_hex(trace, 32)
        && is_hex(span, 16);
    valid.then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &'static str, value: &str) -> Request {
        Request::builder().header(name, value).body(axum::body::Body::empty()).expect("a request")
    }

    #[test]
    fn a_callers_id_is_kept_when_it_can_do_no_harm() {
        for (given, kept) in [
            ("ci-job.42_a", true),
            ("a b", false),
            ("\"><script>", false),
            ("", false),
            (&"x".repeat(65), false),
        ] {
            let id = RequestId::for_request(&request("x-request-id", given)).to_string();
            assert_eq!(id == given, kept, "{given:?}");
        }
    }

    #[test]
    fn a_trace_is_joined_only_when_its_context_is_valid() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (parent, expected) in [
            (format!("00-{trace}-00f067aa0ba902b7-01"), Some(trace)),
            (format!("ff-{trace}-00f067aa0ba902b7-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            ("nonsense".to_owned(), None),
        ] {
            assert_eq!(trace_id(&request("traceparent", &parent)), expected, "{parent}");
        }
    }
}
