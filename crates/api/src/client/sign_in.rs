//! Sign-in: how programs get tokens, and give them back.

use http::{StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Error, Result, query_string};
use crate::sign_in::{
    AuthorizationServer, DeviceAuthorizationAnswer, DeviceAuthorizationRequest, RevocationRequest,
    TokenAnswer, TokenRequest,
};

impl Client {
    /// Where programs get tokens.
    pub async fn authorization_server(&self) -> Result<AuthorizationServer> {
        Ok(self.get("/.well-known/oauth-authorization-server").await?.value)
    }

    pub async fn token(&self, request: &TokenRequest) -> Result<TokenAnswer> {
        read(&self.form("/oauth/token", request).await?)
    }

    pub async fn device_authorization(&self, client: &str) -> Result<DeviceAuthorizationAnswer> {
        let request = DeviceAuthorizationRequest { client_id: client.to_owned() };
        read(&self.form("/oauth/device_authorization", &request).await?)
    }

    /// Ends the sign-in that a refresh token came from.
    pub async fn revoke(&self, request: &RevocationRequest) -> Result<()> {
        self.form("/oauth/revoke", request).await.map(drop)
    }

    /// A form, as OAuth has it; no credential goes with it.
    async fn form(&self, path: &str, fields: &impl Serialize) -> Result<Vec<u8>> {
        let fields = serde_json::to_value(fields).map_err(|error| Error::Setup(error.to_string()))?;
        let form = query_string(&fields).trim_start_matches('?').to_owned();
        let request = self.http.post(self.url(path));
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let answer = request.send().await.map_err(Error::Unreachable)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(Error::Unreachable)?;
        if status.is_success() {
            return Ok(body.to_vec());
        }
        if let Ok(refused) = serde_json::from_slice(&body) {
            return Err(Error::NoTokens(Box::new(refused)));
        }
        Err(serde_json::from_slice(&body)
            .map_or(Error::Foreign(status), |problem| Error::Refused(Box::new(problem))))
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|_| Error::Foreign(StatusCode::OK))
}
