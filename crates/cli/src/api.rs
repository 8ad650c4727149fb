//! Any request to the API, for what no other command does.

use std::io::{self, Read};

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use paddock_api::client::Client;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::output::Output;

pub const EXAMPLES: &str = "\
Examples:
  paddock api GET /tenants
  paddock api GET '/tenants?labelSelector=team=maps' --paginate -o yaml
  paddock api POST /tenants --body '{\"name\": \"acme\"}'
  paddock api PUT /tenants/ten_01jcr8e8v0e9bvqz3tz4d0wq2h --body @acme.json
  paddock tenant get acme -o json | jq '{name: \"copy\", labels}' | paddock api POST /tenants --body -
  paddock api DELETE /tenants/ten_01jcr8e8v0e9bvqz3tz4d0wq2h -H 'If-Match: \"3\"'
  paddock api GET /-/openapi/schema

A pipe gets the body of the answer byte for byte; a terminal gets it indented.";

#[derive(Args)]
pub struct Request {
    /// Such as GET or POST
    #[arg(value_parser = method)]
    method: Method,
    /// Path and query; stands under /api/v1 unless it begins with /api or /- (or /v1, the device API)
    path: String,
    /// Body of the request: JSON, or @FILE to read it from, or - for standard input
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// Header to send along; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Get every page of a list and show them as one
    #[arg(long, conflicts_with = "body")]
    paginate: bool,
}

/// What every list of the API looks like. YAML's value keeps the order of the members; JSON's sorts them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<yaml_serde::Value>,
    next_cursor: Option<String>,
}

pub async fn run(request: Request, client: &Client, output: Output) -> Result<(), Failure> {
    let output = output.for_body()?;
    let (path, headers) = (full_path(&request.path), HeaderMap::from_iter(request.headers));
    let body = if request.paginate {
        if request.method != Method::GET {
            return Err(Failure::Usage("--paginate goes with GET only".to_owned()));
        }
        every_page(client, path, headers).await?
    } else {
        let body = request.body.map(read_body).transpose()?;
        client.request(request.method, &path, headers, body).await?.1
    };
    output.show(&body)
}

async fn every_page(client: &Client, path: String, headers: HeaderMap) -> Result<Vec<u8>, Failure> {
    let mut whole = Page { items: Vec::new(), next_cursor: None };
    let mut next = path.clone();
    loop {
        let (_, body) = client.request(Method::GET, &next, headers.clone(), None).await?;
        let page: Page = serde_json::from_slice(&body)
            .map_err(|_| Failure::Usage(format!("{path} is not a list; leave out --paginate")))?;
        whole.items.extend(page.items);
        match page.next_cursor {
            Some(cursor) => next = with_cursor(&path, &cursor),
            None => return serde_json::to_vec(&whole).map_err(|error| Failure::Output(error.into())),
        }
    }
}

fn method(text: &str) -> Result<Method, &'static str> {
    text.to_uppercase().parse().map_err(|_| "write GET, POST, PUT, PATCH or DELETE")
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    const FORM: &str = "write it as 'Name: value'";
    let (name, value) = text.split_once(':').ok_or(FORM)?;
    Ok((name.trim().parse().map_err(|_| FORM)?, value.trim().parse().map_err(|_| FORM)?))
}

fn full_path(path: &str) -> String {
    let path = path.trim_start_matches('/');
    match path.split(['/', '?']).next() {
        Some("-" | "api" | "v1") => format!("/{path}"),
        _ => format!("/api/v1/{path}"),
    }
}

fn with_cursor(path: &str, cursor: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    let pairs: Vec<&str> = kept.collect();
    let before = if pairs.is_empty() { String::new() } else { pairs.join("&") + "&" };
    format!("{path}?{before}cursor={cursor}")
}

fn read_body(body: String) -> Result<Vec<u8>, Failure> {
    let unreadable = |name: &str, error: io::Error| Failure::Usage(format!("cannot read {name}: {error}"));
    if body == "-" {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(|error| unreadable("standard input", error))?;
        Ok(bytes)
    } else if let Some(file) = body.strip_prefix('@') {
        std::fs::read(file).map_err(|error| unreadable(file, error))
    } else {
        Ok(body.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{full_path, header, with_cursor};

    #[test]
    fn a_path_stands_under_the_api_unless_it_names_another_surface() {
        for (path, expected) in [
            ("/tenants", "/api/v1/tenants"),
            ("tenants?limit=5", "/api/v1/tenants?limit=5"),
            ("/api/v1/tenants", "/api/v1/tenants"),
            ("/v1/devices", "/v1/devices"),
            ("/-/version", "/-/version"),
            ("/apiaries", "/api/v1/apiaries"),
            ("/v1?a=/b", "/v1?a=/b"),
        ] {
            assert_eq!(full_path(path), expected);
        }
    }

    #[test]
    fn the_next_page_keeps_the_rest_of_the_query() {
        for (path, expected) in [
            ("/a", "/a?cursor=n"),
            ("/a?limit=5&name=x", "/a?limit=5&name=x&cursor=n"),
            ("/a?cursor=old&limit=5", "/a?limit=5&cursor=n"),
            ("/a?", "/a?cursor=n"),
        ] {
            assert_eq!(with_cursor(path, "n"), expected);
        }
    }

    #[test]
    fn a_header_has_a_name_and_a_value() {
        let (name, value) = header("If-Match: \"3\"").expect("it is a header");

        assert_eq!((name.as_str(), value.as_bytes()), ("if-match", b"\"3\"".as_slice()));
        for text in ["If-Match", ": 3", "a b: c", "a: b\nc"] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }
}
