//! The issuers whose tokens are accepted: where their keys are, and the keys as they were last seen.
//!
//! Keys are fetched in the background. A token waits for them only if there are none yet, or if it names one that
//! is not known; however many such tokens come, the issuer is asked once, and then not again for a while.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use paddock_drivers::identity_providers::{Answer, IdentityProvider, Trouble};
use paddock_engine::Engine;
use paddock_model::ports::Random;
use paddock_model::{Error, Result, Timestamp};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use url::Url;

use super::jwks::KeySet;
use super::{expired, invalid};
use crate::config::issuers::{self, Issuer as Settings, Kind};
use crate::jwt::{Claims, Flaw, Material, Policy, Refusal, Unambiguous, Unverified};

/// Unknown keys make us ask at most this often.
const PAUSE: Duration = Duration::from_secs(30);
/// The same while there are no keys at all.
const PAUSE_WITHOUT_KEYS: Duration = Duration::from_secs(5);
/// How long a request waits for keys.
const PATIENCE: Duration = Duration::from_secs(2);
/// An issuer that is down is believed on its last word for so long.
const STALE_AFTER: Duration = Duration::from_secs(24 * 3600);
const USUAL_AGE: Duration = Duration::from_secs(600);
const SHORTEST_AGE: Duration = Duration::from_secs(60);
const LONGEST_AGE: Duration = Duration::from_secs(3600);
/// Where things are changes seldom; asked again after that time, or when the keys are not where they were.
const DISCOVERY_AGE: Duration = Duration::from_secs(3600);
/// Clocks of others may be off by so much, in seconds.
const SKEW: i64 = 60;

/// All of them, by what their tokens say in `iss`.
#[derive(Default)]
pub struct Issuers(HashMap<String, Arc<Issuer>>);

impl Issuers {
    /// Knows the issuers and asks none of them yet.
    pub fn new(engine: &Engine, settings: &[Settings]) -> anyhow::Result<Self> {
        let mut all = HashMap::new();
        for each in settings {
            let provider = IdentityProvider::new(each.ca_file.as_deref())
                .with_context(|| format!("the issuer {} cannot be reached", each.id))?;
            let issuer = Arc::new(Issuer {
                settings: each.clone(),
                provider,
                engine: engine.clone(),
                runtime: Handle::current(),
                state: Mutex::default(),
                discovery: tokio::sync::Mutex::default(),
                fetched: watch::Sender::new(0),
            });
            all.insert(each.url.clone(), issuer);
        }
        Ok(Issuers(all))
    }

    /// Keeps the keys of all issuers fresh; waits for none of them.
    pub fn follow(&self, chores: &mut JoinSet<()>) {
        for issuer in self.iter().filter(|issuer| issuer.settings.kind != Kind::ReviewedServiceAccount) {
            chores.spawn(Arc::clone(issuer).follow());
        }
    }

    pub fn find(&self, url: &str) -> Option<&Arc<Issuer>> {
        self.0.get(url)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        self.0.values()
    }

    /// Where people sign in with a browser, if they do not do so here.
    pub fn for_browsers(&self) -> Option<&Arc<Issuer>> {
        let mut fit: Vec<_> = self.iter().filter(|issuer| issuer.settings.client_id.is_some()).collect();
        fit.sort_by(|a, b| a.settings.id.cmp(&b.settings.id));
        fit.first().copied()
    }
}

pub struct Issuer {
    pub settings: Settings,
    pub(super) provider: IdentityProvider,
    engine: Engine,
    /// Requests are served on threads of their own; what outlives one runs here.
    runtime: Handle,
    state: Mutex<State>,
    /// Held by the one browser for whom the issuer is asked where it does what.
    discovery: tokio::sync::Mutex<()>,
    /// Counts the attempts that have ended.
    fetched: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    keys: Option<Keys>,
    endpoints: Option<(Arc<Endpoints>, Duration)>,
    /// Why a browser could not be told where to go, and since when.
    undiscovered: Option<(String, Duration)>,
    /// When a request last made us ask.
    asked_at: Option<Duration>,
    under_way: bool,
    /// Why the last attempt failed.
    trouble: Option<String>,
    /// Raised whenever the keys change.
    generation: u64,
}

struct Keys {
    set: Arc<KeySet>,
    fetched_at: Timestamp,
    fetched: Duration,
    fresh_for: Duration,
}

/// Where an issuer does what.
#[derive(Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub keys: Url,
    pub authorization: Option<Url>,
    pub token: Option<Url>,
    pub userinfo: Option<Url>,
    pub sign_out: Option<Url>,
    /// Whether its answers to a browser name it.
    pub names_itself: bool,
}

/// Which keys a token was verified by: when they change, it is verified anew.
#[derive(Clone)]
pub struct KeysThen {
    issuer: Arc<Issuer>,
    generation: u64,
}

impl KeysThen {
    pub fn still_hold(&self) -> bool {
        self.issuer.state().generation == self.generation
    }
}

impl Issuer {
    /// What is accepted of this issuer's tokens.
    pub fn policy(&self) -> Policy<'_> {
        let settings = &self.settings;
        Policy {
            issuer: &settings.url,
            audience: &settings.audience,
            algorithms: &settings.algorithms,
            typ: settings.typ,
            clients: &settings.clients,
            longest_life: settings.longest_life.as_secs() as i64,
            skew: SKEW,
        }
    }

    /// What the token claims, if one of this issuer's keys vouches for it.
    pub async fn verify(
        self: &Arc<Self>,
        token: Unverified<'_>,
        policy: &Policy<'_>,
    ) -> Result<(Claims, KeysThen)> {
        let (set, then) = self.keys_for(&token).await?;
        let key: &Material = match set.key_for(&token) {
            Some(Ok(key)) => key,
            Some(Err(flaw)) => return Err(self.refuse(flaw.into())),
            None => return Err(self.refuse(Flaw("it names an unknown key").into())),
        };
        let claims = token.verify(key, policy, self.engine.now().as_second());
        claims.map(|claims| (claims, then)).map_err(|refusal| self.refuse(refusal))
    }

    /// The one answer to a bad token; the reason is for the log.
    pub fn refuse(&self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Expired => expired(),
            Refusal::Flawed(Flaw(reason)) => {
                tracing::info!(issuer = self.settings.id, reason, "a token is refused");
                invalid()
            }
        }
    }

    pub(super) fn unavailable(&self, cause: impl fmt::Display) -> Error {
        let detail = "The identity provider of this credential does not answer. Try again.";
        let error = Error::unavailable("identity_provider_unavailable", detail);
        error.with_retry_after(PAUSE_WITHOUT_KEYS).with_cause(format!("issuer {}: {cause}", self.settings.id))
    }

    /// Keys among which the token's should be; asks the issuer for them if need be.
    async fn keys_for(self: &Arc<Self>, token: &Unverified<'_>) -> Result<(Arc<KeySet>, KeysThen)> {
        // An algorithm that is not accepted needs no key.
        if !self.settings.algorithms.contains(&token.algorithm) {
            return Err(self.refuse(Flaw("its algorithm is not accepted of this issuer").into()));
        }
        let mut ended = self.fetched.subscribe();
        let now = self.engine.clock().elapsed();
        {
            let mut state = self.state();
            let known = state.usable(now);
            if let Some(set) = &known
                && set.key_for(token).is_some()
            {
                return Ok((set.clone(), self.then(&state)));
            }
            let pause = if known.is_some() { PAUSE } else { PAUSE_WITHOUT_KEYS };
            let early = state.asked_at.is_some_and(|asked| now < asked + pause);
            if !state.under_way && early {
                return self.decide(&state, now);
            }
            if !state.under_way {
                state.asked_at = Some(now);
                self.fetch_in_background(&mut state);
            }
        }
        let waited = tokio::time::timeout(PATIENCE, ended.changed()).await;
        let state = self.state();
        match waited {
            Ok(_) => self.decide(&state, now),
            Err(_) => Err(self.unavailable("its keys do not come")),
        }
    }

    /// Without any word of the issuer nobody can say whether a token is good.
    fn decide(self: &Arc<Self>, state: &State, now: Duration) -> Result<(Arc<KeySet>, KeysThen)> {
        match (state.usable(now), &state.trouble) {
            (Some(set), None) => Ok((set, self.then(state))),
            (_, trouble) => Err(self.unavailable(trouble.as_deref().unwrap_or("there are no keys yet"))),
        }
    }

    fn then(self: &Arc<Self>, state: &State) -> KeysThen {
        KeysThen { issuer: self.clone(), generation: state.generation }
    }

    /// One attempt at a time; `fetched` tells when it has ended.
    fn fetch_in_background(self: &Arc<Self>, state: &mut State) {
        state.under_way = true;
        let issuer = self.clone();
        self.runtime.spawn(async move {
            let outcome = issuer.fetch().await;
            issuer.record(outcome);
            issuer.fetched.send_modify(|count| *count += 1);
        });
    }

    /// Keeps the keys fresh for as long as the server runs.
    async fn follow(self: Arc<Self>) {
        loop {
            let mut ended = self.fetched.subscribe();
            {
                let mut state = self.state();
                if !state.under_way {
                    self.fetch_in_background(&mut state);
                }
            }
            let _ = ended.changed().await;
            let pause = {
                let state = self.state();
                match (&state.keys, &state.trouble) {
                    (Some(keys), None) => keys.fresh_for.mul_f64(0.8 - 0.1 * fraction(self.engine.random())),
                    _ => PAUSE,
                }
            };
            self.engine.clock().sleep(pause).await;
        }
    }

    async fn fetch(&self) -> Result<(KeySet, Duration), String> {
        let url = match (&self.settings.kind, &self.settings.api_server) {
            (Kind::ServiceAccount, Some(server)) => below(server, "openid/v1/jwks"),
            _ => self.discover().await?.keys.clone(),
        };
        let answer = self.get(&url).await;
        if answer.is_err() {
            self.state().endpoints = None;
        }
        let answer = answer.map_err(|trouble| format!("its keys cannot be read: {trouble}"))?;
        let set = KeySet::parse(&answer.body)
            .map_err(|Flaw(reason)| format!("its keys cannot be used: {reason}"))?;
        let age = answer.max_age.unwrap_or(USUAL_AGE).min(USUAL_AGE);
        Ok((set, age.clamp(SHORTEST_AGE, LONGEST_AGE)))
    }

    fn record(&self, outcome: Result<(KeySet, Duration), String>) {
        let (fetched_at, fetched) = (self.engine.now(), self.engine.clock().elapsed());
        let id = &self.settings.id;
        let mut state = self.state();
        state.under_way = false;
        match outcome {
            Ok((set, fresh_for)) => {
                if state.trouble.take().is_some() {
                    tracing::info!(issuer = id, "the issuer answers again");
                }
                let same = state.keys.as_ref().filter(|keys| *keys.set == set).map(|keys| keys.set.clone());
                if same.is_none() {
                    state.generation += 1;
                    tracing::info!(issuer = id, keys = set.len(), "new keys");
                }
                let set = same.unwrap_or_else(|| Arc::new(set));
                state.keys = Some(Keys { set, fetched_at, fetched, fresh_for });
            }
            Err(trouble) => {
                tracing::warn!(issuer = id, trouble, "the issuer's keys cannot be refreshed");
                state.trouble = Some(trouble);
            }
        }
    }

    /// Where the issuer does what, for a browser that is to go there. However many come, an issuer that is down is asked
    /// once, and then not again for a while.
    pub async fn endpoints(&self) -> Result<Arc<Endpoints>, String> {
        let _turn = self.discovery.lock().await;
        let now = self.engine.clock().elapsed();
        if let Some((trouble, at)) = &self.state().undiscovered
            && now < *at + PAUSE_WITHOUT_KEYS
        {
            return Err(trouble.clone());
        }
        let found = self.discover().await;
        self.state().undiscovered = found.as_ref().err().map(|trouble| (trouble.clone(), now));
        found
    }

    /// The same by its own word (OpenID Connect Discovery).
    async fn discover(&self) -> Result<Arc<Endpoints>, String> {
        let now = self.engine.clock().elapsed();
        if let Some((known, at)) = &self.state().endpoints
            && now < *at + DISCOVERY_AGE
        {
            return Ok(known.clone());
        }
        let base = Url::parse(&self.settings.url).map_err(|error| error.to_string())?;
        let answer = self.get(&below(&base, ".well-known/openid-configuration")).await;
        let answer = answer.map_err(|trouble| format!("discovery fails: {trouble}"))?;
        let found = Arc::new(self.read_discovery(&answer.body)?);
        self.state().endpoints = Some((found.clone(), now));
        Ok(found)
    }

    fn read_discovery(&self, body: &[u8]) -> Result<Endpoints, String> {
        let Ok(Unambiguous(document)) = serde_json::from_slice(body) else {
            return Err("discovery answers no plain JSON".to_owned());
        };
        if document["issuer"] != Value::String(self.settings.url.clone()) {
            return Err("discovery names another issuer than the configured one".to_owned());
        }
        let url = |name: &str| {
            let url = document[name].as_str().and_then(|text| Url::parse(text).ok())?;
            issuers::is_private(&url).then_some(url)
        };
        let keys = url("jwks_uri").ok_or("discovery names no https address for the keys")?;
        let own = Url::parse(&self.settings.url).ok().and_then(|own| own.host_str().map(str::to_owned));
        let host = keys.host_str().unwrap_or_default();
        if own.as_deref() != Some(host) && self.settings.jwks_hosts.iter().all(|allowed| allowed != host) {
            return Err(format!("its keys are at {host}; name that in jwks_hosts if you trust it"));
        }
        Ok(Endpoints {
            keys,
            authorization: url("authorization_endpoint"),
            token: url("token_endpoint"),
            userinfo: url("userinfo_endpoint"),
            sign_out: url("end_session_endpoint"),
            names_itself: document["authorization_response_iss_parameter_supported"] == true,
        })
    }

    async fn get(&self, url: &Url) -> Result<Answer, String> {
        let token = self.own_token()?;
        match self.provider.get(url, token.as_deref()).await {
            Ok(answer) if answer.status == 200 => Ok(answer),
            Ok(answer) => Err(format!("{url} answers {}", answer.status)),
            Err(trouble) => Err(describe(&trouble)),
        }
    }

    /// Our own token for asking, as it is now: whoever gave it to us replaces it.
    pub(super) fn own_token(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.settings.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(path);
        text.map(|text| Some(text.trim().to_owned())).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// For operators: whether its tokens can be verified, in words.
    pub fn health(&self) -> Result<String, String> {
        let state = self.state();
        match (&state.keys, &state.trouble) {
            _ if self.settings.kind == Kind::ReviewedServiceAccount => {
                Ok("is asked about each token".to_owned())
            }
            (Some(keys), None) => Ok(format!("{} keys, read at {}", keys.set.len(), keys.fetched_at)),
            (Some(keys), Some(trouble)) => {
                Err(format!("{trouble}; its keys of {} still hold", keys.fetched_at))
            }
            (None, Some(trouble)) => Err(format!("{trouble}; its tokens cannot be verified")),
            (None, None) => Err("its keys are not read yet".to_owned()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn usable(&self, now: Duration) -> Option<Arc<KeySet>> {
        let keys = self.keys.as_ref().filter(|keys| now < keys.fetched + STALE_AFTER)?;
        Some(keys.set.clone())
    }
}

pub(super) fn describe(trouble: &Trouble) -> String {
    let mut text = trouble.to_string();
    let mut source = std::error::Error::source(trouble);
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}

/// A path below an address, whether or not that ends with a slash.
pub(super) fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

/// A number from 0 to 1, so that replicas do not ask in step.
fn fraction(random: &dyn Random) -> f64 {
    let mut byte = [0];
    random.fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
