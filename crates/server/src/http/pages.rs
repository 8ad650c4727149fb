//! Pages for people: plain HTML that needs no script, and a frame that lets nothing else in.

use std::fmt::{Display, Write};

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use paddock_model::Error;
use paddock_model::error::Kind;

use super::conventions::problem::Failure;

pub const STYLE: &str = include_str!("pages/style.css");
pub const STYLE_PATH: &str = "/sign-in/style.css";

/// A text as it may stand in HTML, within quotes too.
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}

/// A page on its way out.
pub struct Page {
    pub status: StatusCode,
    pub title: &'static str,
    /// What went wrong before, if anything; read aloud at once.
    pub error: Option<String>,
    /// HTML; every text in it is escaped.
    pub body: String,
    /// Where its forms may lead besides this server: browsers hold that against redirects, too.
    pub leads_to: Option<String>,
    pub retry_after: Option<u64>,
}

impl Page {
    pub fn new(title: &'static str, body: String) -> Self {
        Page { status: StatusCode::OK, title, error: None, body, leads_to: None, retry_after: None }
    }

    /// The same page after something went wrong: says so, with the status that fits.
    #[must_use]
    pub fn refused(mut self, error: &Error) -> Self {
        let mut words = error.detail.to_string();
        for fault in &error.faults {
            // A fault completes a sentence; on a page it is one.
            words = fault.message.chars().take(1).flat_map(char::to_uppercase).collect();
            words.extend(fault.message.chars().skip(1));
            words.push('.');
        }
        self.retry_after = error.retry_after.map(|after| after.as_secs().max(1));
        if error.code == "account_paused" {
            let _ = write!(words, " You can try again in {} s.", self.retry_after.unwrap_or(1));
        }
        self.status = status(error.kind);
        self.error = Some(words);
        self
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let title = Escaped(self.title);
        let error = self.error.as_deref().unwrap_or_default();
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} · Paddock</title>\n<link rel=\"stylesheet\" href=\"{STYLE_PATH}\">\n</head>\n<body>\n\
             <div>\n<p class=\"brand\">Paddock</p>\n<main>\n<h1>{title}</h1>\n\
             <p class=\"error\" role=\"alert\" aria-live=\"assertive\" id=\"error\">{}</p>\n{}\n</main>\n</div>\n</body>\n</html>\n",
            Escaped(error),
            self.body
        );
        let leads_to = self.leads_to.map(|origin| format!(" {origin}")).unwrap_or_default();
        let policy = format!(
            "default-src 'none'; style-src 'self'; form-action 'self'{leads_to}; frame-ancestors 'none'; base-uri 'none'"
        );
        let mut response = (self.status, html).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        // With `no-referrer` browsers would hide our own origin from ourselves; this one never tells a path or a query.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
        if let Ok(policy) = HeaderValue::try_from(policy) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, after.into());
        }
        response
    }
}

/// What ends in a page that only says what went wrong.
pub enum PageFailure {
    Error(Error),
    /// The request did not even arrive whole.
    Transport(Failure),
}

pub type PageAnswer<T> = Result<T, PageFailure>;

impl<E: Into<Error>> From<E> for PageFailure {
    fn from(error: E) -> Self {
        PageFailure::Error(error.into())
    }
}

impl IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        let error = match self {
            PageFailure::Error(error) => error,
            PageFailure::Transport(failure) => return failure.into_response(),
        };
        if matches!(error.kind, Kind::Internal | Kind::Unavailable) {
            tracing::error!(%error, "a page failed");
        }
        let title = match error.kind {
            Kind::Internal | Kind::Unavailable => "Something went wrong",
            Kind::TooMany => "Too fast",
            _ => "This did not work",
        };
        let body = "<a class=\"button quiet\" href=\"/\">To the start</a>".to_owned();
        Page::new(title, body).refused(&error).into_response()
    }
}

const fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Malformed => StatusCode::BAD_REQUEST,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        // 401 is for who can send another credential by itself; a person gets the form again.
        Kind::Unauthenticated | Kind::Conflict | Kind::Stale | Kind::TooLarge | Kind::Invalid => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let escaped = Escaped("<a href='x' title=\"y\">&</a>").to_string();
        assert_eq!(escaped, "&lt;a href=&#39;x&#39; title=&quot;y&quot;&gt;&amp;&lt;/a&gt;");
    }
}
