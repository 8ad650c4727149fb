//! Service accounts: projected tokens of Kubernetes, verified by the cluster's keys or by asking its API server.

use std::sync::Arc;
use std::time::Duration;

use paddock_engine::Engine;
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::subjects::Subject;
use paddock_model::{Result, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::issuers::{Issuer, KeysThen, below, describe};
use super::{Identity, invalid};
use crate::jwt::{Claims, Flaw, Policy, Refusal, Unambiguous, Unverified};

/// How long the API server's word on a token holds.
pub const REVIEW_HOLDS: Duration = Duration::from_secs(10);
/// How long a refusal does: strangers can make up as many tokens as they like, but not have each asked about for ever.
pub const REFUSAL_HOLDS: Duration = Duration::from_secs(5);
/// Questions under way at once, and how long one waits for its turn.
static AT_ONCE: Semaphore = Semaphore::const_new(32);
const PATIENCE: Duration = Duration::from_secs(2);
/// Extended tokens live a year on paper; `warnafter` says for how long they are meant.
const LONGEST_EXTENDED: i64 = 366 * 24 * 3600;

pub async fn verify(
    engine: &Engine,
    issuer: &Arc<Issuer>,
    token: Unverified<'_>,
) -> Result<(Identity, KeysThen)> {
    let policy = Policy { longest_life: LONGEST_EXTENDED, ..issuer.policy() };
    let (claims, keys) = issuer.verify(token, &policy).await?;
    let account = account(engine, issuer, claims).map_err(|refusal| issuer.refuse(refusal))?;
    Ok((identity(issuer, account)?, keys))
}

/// Asks the API server, which also knows whether the account and its pod are still there.
pub async fn review(
    engine: &Engine,
    issuer: &Arc<Issuer>,
    text: &str,
    token: Unverified<'_>,
) -> Result<Identity> {
    let policy = Policy { longest_life: LONGEST_EXTENDED, ..issuer.policy() };
    // What cannot be good is not worth a question.
    let now = engine.now().as_second();
    let claims = token.accept(&policy, now).map_err(|refusal| issuer.refuse(refusal))?;
    let account = account(engine, issuer, claims).map_err(|refusal| issuer.refuse(refusal))?;

    let Ok(Ok(_turn)) = tokio::time::timeout(PATIENCE, AT_ONCE.acquire()).await else {
        return Err(issuer.unavailable("too many questions wait for its API server"));
    };
    let server = issuer.settings.api_server.as_ref().ok_or_else(invalid)?;
    let url = below(server, "apis/authentication.k8s.io/v1/tokenreviews");
    let own = issuer.own_token().map_err(|trouble| issuer.unavailable(trouble))?;
    let question = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": { "token": text, "audiences": [issuer.settings.audience] },
    });
    let answer = issuer.provider.post_json(&url, own.as_deref(), &question).await;
    let answer = answer.map_err(|trouble| issuer.unavailable(describe(&trouble)))?;
    // Also when it is we who are refused: that says nothing of the token.
    if !matches!(answer.status, 200 | 201) {
        return Err(issuer.unavailable(format!("its API server answers {}", answer.status)));
    }
    let Ok(Unambiguous(review)) = serde_json::from_slice(&answer.body) else {
        return Err(issuer.unavailable("its API server answers no JSON"));
    };
    let status = &review["status"];
    let for_us = status["audiences"]
        .as_array()
        .is_some_and(|all| all.iter().any(|each| each == issuer.settings.audience.as_str()));
    let same = status["user"]["username"] == account.username().as_str();
    if status["authenticated"] != true || !for_us || !same {
        return Err(issuer.refuse(Flaw("the API server does not know it").into()));
    }
    identity(issuer, account)
}

struct Account {
    namespace: String,
    name: String,
    id: Option<String>,
    issued_at: Option<i64>,
    expires_at: i64,
}

impl Account {
    fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

fn account(engine: &Engine, issuer: &Issuer, claims: Claims) -> Result<Account, Refusal> {
    let longest_life = issuer.settings.longest_life.as_secs() as i64;
    read_account(claims, longest_life, engine.now().as_second())
}

fn read_account(claims: Claims, longest_life: i64, now: i64) -> Result<Account, Refusal> {
    let named = claims.subject.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = named.ok_or(Flaw("its subject is no service account"))?;
    if !is_name(namespace) || !is_name(name) {
        return Err(Flaw("its subject is no name of a service account").into());
    }
    let details = &claims.others.get("kubernetes.io").cloned().unwrap_or_default();
    for (said, known) in [(&details["namespace"], namespace), (&details["serviceaccount"]["name"], name)] {
        if !said.is_null() && said != known {
            return Err(Flaw("its subject and its account differ").into());
        }
    }
    let end = match &details["warnafter"] {
        Value::Null => claims.expires_at,
        meant => meant.as_i64().ok_or(Flaw("a time is no number"))?.min(claims.expires_at),
    };
    if end - claims.issued_at.ok_or(Flaw("it does not say when it was issued"))? > longest_life {
        return Err(Flaw("it lives too long").into());
    }
    if now >= end {
        return Err(Refusal::Expired);
    }
    Ok(Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        id: claims.id,
        issued_at: claims.issued_at,
        expires_at: end,
    })
}

/// A name as Kubernetes allows it, so that none can pretend to be of another namespace.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=253).contains(&text.len()) && text.bytes().all(plain)
}

fn identity(issuer: &Issuer, account: Account) -> Result<Identity> {
    let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|_| invalid());
    let id = &issuer.settings.id;
    let subject = Subject::ServiceAccount(format!("{id}/{}/{}", account.namespace, account.name).into());
    let credential = Credential {
        id: account.id,
        issuer: Some(id.clone()),
        issued_at: account.issued_at.map(time).transpose()?,
        expires_at: Some(time(account.expires_at)?),
        ..Credential::new(CredentialKind::ServiceAccount)
    };
    Ok(Identity { subject, credential: Arc::new(credential) })
}
