//! A browser for tests: it keeps cookies, and sends the forms of our pages as a person would.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::collections::HashMap;

use crate::world::{Answer, World};

/// A browser that keeps cookies and follows nothing by itself.
pub struct Browser {
    base: String,
    pub cookies: HashMap<String, String>,
    pub http: reqwest::Client,
    pub origin: Option<String>,
}

impl Browser {
    pub fn new(world: &World) -> Self {
        Browser::at(world.url(""))
    }

    /// At the server with this address.
    pub fn at(base: String) -> Self {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        Browser { base, cookies: HashMap::new(), http: http.build().expect("a client"), origin: None }
    }

    /// Behind a proxy that says that it calls from there.
    pub fn from_address(world: &World, address: &str) -> Self {
        let value = reqwest::header::HeaderValue::from_str(address).expect("an address");
        let headers = [(reqwest::header::HeaderName::from_static("x-forwarded-for"), value)];
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let http = http.default_headers(headers.into_iter().collect()).build().expect("a client");
        Browser { http, ..Browser::new(world) }
    }

    pub async fn send(&mut self, request: reqwest::RequestBuilder) -> Answer {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = request.header("cookie", cookies.join("; "));
        if let Some(origin) = &self.origin {
            request = request.header("origin", origin);
        }
        let response = self.http.execute(request.build().expect("a request")).await.expect("an answer");
        for cookie in response.headers().get_all("set-cookie") {
            let text = cookie.to_str().expect("text");
            let (name, rest) = text.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            for rule in ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"] {
                assert!(text.contains(rule), "{text}");
            }
            assert!(name.starts_with("__Host-") && !text.contains("Domain"), "{text}");
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let (status, headers) = (response.status(), response.headers().clone());
        Answer { status, headers, text: response.text().await.expect("a body") }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        let request = self.http.get(format!("{}{path}", self.base));
        self.send(request).await
    }

    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let request = self.http.post(format!("{}{path}", self.base)).form_fields(fields);
        self.send(request).await
    }

    /// Opens a page and sends its form, with these fields besides the hidden ones.
    pub async fn fill(&mut self, page: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
        let shown = self.get(page).await.expect(200);
        let mut all = hidden(&shown.text);
        all.retain(|(name, _)| !fields.iter().any(|(given, _)| given == name));
        let mut all: Vec<(&str, &str)> =
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        all.extend(fields);
        self.post(action, &all).await
    }

    pub async fn sign_in(&mut self, login: &str, password: &str) -> Answer {
        self.fill("/sign-in", "/sign-in", &[("login", login), ("password", password)]).await
    }

    pub fn session(&self) -> Option<&String> {
        self.cookies.get("__Host-paddock-session")
    }

    pub async fn is_signed_in(&mut self) -> bool {
        self.get("/").await.status == 200
    }
}

pub trait Form {
    fn form_fields(self, fields: &[(&str, &str)]) -> Self;
}

impl Form for reqwest::RequestBuilder {
    fn form_fields(self, fields: &[(&str, &str)]) -> Self {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(fields);
        self.header("content-type", "application/x-www-form-urlencoded").body(text.finish())
    }
}

/// The hidden fields of a page's form.
pub fn hidden(html: &str) -> Vec<(String, String)> {
    let unescape = |text: &str| {
        text.replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
    };
    let attribute = |tag: &str, name: &str| {
        let start = tag.find(&format!("{name}=\""))? + name.len() + 2;
        Some(unescape(&tag[start..start + tag[start..].find('"')?]))
    };
    let tags = html.split("<input ").skip(1).filter_map(|rest| rest.split('>').next());
    let hidden = tags.filter(|tag| tag.contains("type=\"hidden\""));
    hidden.filter_map(|tag| Some((attribute(tag, "name")?, attribute(tag, "value")?))).collect()
}
