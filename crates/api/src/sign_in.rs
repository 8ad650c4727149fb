//! Sign-in: the forms of the pages, and what clients and the server say to each other by OAuth 2.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Where to go on after the sign-in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShowSignIn {
    /// A path on this server; anything else is ignored.
    #[param(max_length = 2048, pattern = "^/[\\x20-\\x7e]*$", nullable = false)]
    pub return_to: Option<String>,
    /// Present to prove once more who one is.
    #[param(max_length = 1, pattern = "^1$", nullable = false)]
    pub again: Option<String>,
    /// Present to use an account here although there is an identity provider.
    #[param(max_length = 1, pattern = "^1$", nullable = false)]
    pub local: Option<String>,
    /// Present to be told that one is signed out, instead of being sent to the identity provider.
    #[param(max_length = 1, pattern = "^1$", nullable = false)]
    pub signed_out: Option<String>,
}

/// What an identity provider sends a browser back with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct SignInReturn {
    #[param(max_length = 4096, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub code: Option<String>,
    #[param(max_length = 256, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub state: Option<String>,
    /// The provider's own address (RFC 9207).
    #[param(max_length = 2048, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub iss: Option<String>,
    /// Why it let nobody in.
    #[param(max_length = 256, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub error: Option<String>,
}

/// A login and its password.
#[derive(Debug, ToSchema)]
pub struct SignInForm {
    #[schema(max_length = 200, pattern = "^[^\\x00]*$", examples("ada"))]
    pub login: String,
    #[schema(format = Password, max_length = 1024, pattern = "^[^\\x00]*$", write_only)]
    pub password: String,
    #[schema(max_length = 2048, pattern = "^[\\x20-\\x7e]*$", nullable = false, examples("/device"))]
    pub return_to: Option<String>,
    /// As it stands in the form.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub form_token: String,
}

/// Nothing but the proof that the form is ours.
#[derive(Debug, ToSchema)]
pub struct SignOutForm {
    /// As it stands in the form.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub form_token: String,
}

/// The old password and, twice, the new one.
#[derive(Debug, ToSchema)]
pub struct PasswordForm {
    #[schema(format = Password, max_length = 1024, pattern = "^[^\\x00]*$", write_only)]
    pub old_password: String,
    #[schema(format = Password, min_length = 12, max_length = 1024, pattern = "^[^\\x00]*$", write_only)]
    pub password: String,
    #[schema(format = Password, min_length = 12, max_length = 1024, pattern = "^[^\\x00]*$", write_only)]
    pub repeated: String,
    /// As it stands in the form.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub form_token: String,
}

/// Which invitation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShowInvitation {
    /// As it stands in the link.
    #[param(max_length = 100, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub token: Option<String>,
}

/// A password for the account that was made for one.
#[derive(Debug, ToSchema)]
pub struct InvitationForm {
    /// As it stands in the link.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub token: String,
    #[schema(format = Password, min_length = 12, max_length = 1024, pattern = "^[^\\x00]*$", write_only)]
    pub password: String,
    #[schema(format = Password, min_length = 12, max_length = 1024, pattern = "^[^\\x00]*$", write_only)]
    pub repeated: String,
    /// As it stands in the form.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub form_token: String,
}

/// Which machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShowDevice {
    /// The code that the machine shows.
    #[param(max_length = 40, pattern = "^[^\\x00]*$", nullable = false)]
    pub user_code: Option<String>,
}

/// Whether a machine may act for one.
#[derive(Debug, ToSchema)]
pub struct DeviceForm {
    /// The code that the machine shows.
    #[schema(max_length = 40, pattern = "^[^\\x00]*$", examples("WDJB-MJHT"))]
    pub user_code: String,
    #[schema(inline)]
    pub decision: Decision,
    /// As it stands in the form.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub form_token: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Deny,
}

/// What a client asks for (RFC 6749, RFC 7636); parameters that are not known are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ShowAuthorization {
    /// `code`.
    #[param(max_length = 20, pattern = "^[a-z_ ]*$", nullable = false)]
    pub response_type: Option<String>,
    /// `paddock-cli`.
    #[param(max_length = 50, pattern = "^[a-z-]*$", nullable = false)]
    pub client_id: Option<String>,
    /// `http://127.0.0.1:{port}/callback` or `http://[::1]:{port}/callback`.
    #[param(max_length = 200, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub redirect_uri: Option<String>,
    /// Comes back as it is.
    #[param(max_length = 500, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub state: Option<String>,
    /// The SHA-256 of the verifier, as base64url.
    #[param(max_length = 43, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub code_challenge: Option<String>,
    /// `S256`.
    #[param(max_length = 10, pattern = "^[A-Za-z0-9]*$", nullable = false)]
    pub code_challenge_method: Option<String>,
    /// How many seconds ago the person may have signed in; after that, they are asked to once more.
    #[param(minimum = 0, maximum = 31_536_000, nullable = false)]
    pub max_age: Option<u32>,
}

/// The same as the query that showed the page, and what the person decided.
#[derive(Debug, ToSchema)]
pub struct AuthorizationForm {
    #[schema(max_length = 20, pattern = "^code$", examples("code"))]
    pub response_type: String,
    #[schema(max_length = 50, pattern = "^[a-z-]*$", examples("paddock-cli"))]
    pub client_id: String,
    #[schema(max_length = 200, pattern = "^[\\x20-\\x7e]*$", examples("http://127.0.0.1:40123/callback"))]
    pub redirect_uri: String,
    #[schema(max_length = 500, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    pub state: Option<String>,
    #[schema(max_length = 43, pattern = "^[A-Za-z0-9_-]*$")]
    pub code_challenge: String,
    #[schema(max_length = 10, pattern = "^S256$", examples("S256"))]
    pub code_challenge_method: String,
    #[schema(inline)]
    pub decision: Decision,
    /// As it stands in the form.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$")]
    pub form_token: String,
}

/// What a client shows for its tokens; which members are needed depends on the kind of grant.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct TokenRequest {
    /// `authorization_code`, `refresh_token` or `urn:ietf:params:oauth:grant-type:device_code`.
    #[schema(max_length = 100, pattern = "^[a-z0-9:_-]*$", examples("refresh_token"))]
    pub grant_type: String,
    #[schema(max_length = 50, pattern = "^[a-z-]*$", examples("paddock-cli"))]
    pub client_id: String,
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[schema(max_length = 200, pattern = "^[\\x20-\\x7e]*$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    #[schema(min_length = 43, max_length = 128, pattern = "^[A-Za-z0-9._~-]*$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_verifier: Option<String>,
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_code: Option<String>,
}

/// Tokens for a client.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenAnswer {
    /// For `Authorization: Bearer`.
    #[schema(max_length = 2048, pattern = "^[A-Za-z0-9._-]+$")]
    pub access_token: String,
    #[schema(max_length = 6, pattern = "^Bearer$", examples("Bearer"))]
    pub token_type: String,
    /// For how many seconds the access token is good.
    #[schema(minimum = 1, maximum = 86400, examples(900))]
    pub expires_in: u32,
    /// Good for one use: the answer to it holds the next one.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]+$")]
    pub refresh_token: String,
}

impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenAnswer").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// Which client asks for a code to show.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DeviceAuthorizationRequest {
    #[schema(max_length = 50, pattern = "^[a-z-]*$", examples("paddock-cli"))]
    pub client_id: String,
}

/// A code to show to a person, and one to ask with (RFC 8628).
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct DeviceAuthorizationAnswer {
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_-]+$")]
    pub device_code: String,
    #[schema(max_length = 9, pattern = "^[A-Z]{4}-[A-Z]{4}$", examples("WDJB-MJHT"))]
    pub user_code: String,
    #[schema(max_length = 500, pattern = "^https?://", examples("http://127.0.0.1:8080/device"))]
    pub verification_uri: String,
    /// The same, with the code in it.
    #[schema(
        max_length = 500,
        pattern = "^https?://",
        examples("http://127.0.0.1:8080/device?user_code=WDJB-MJHT")
    )]
    pub verification_uri_complete: String,
    /// For how many seconds the codes are good.
    #[schema(minimum = 1, maximum = 86400, examples(900))]
    pub expires_in: u32,
    /// How many seconds to wait between two requests.
    #[schema(minimum = 1, maximum = 600, examples(5))]
    pub interval: u32,
}

impl std::fmt::Debug for DeviceAuthorizationAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAuthorizationAnswer")
            .field("verification_uri", &self.verification_uri)
            .finish_non_exhaustive()
    }
}

/// Which token is to end (RFC 7009).
#[derive(Clone, Serialize, ToSchema)]
pub struct RevocationRequest {
    /// A refresh token; all that came from the same sign-in end with it.
    #[schema(max_length = 2048, pattern = "^[A-Za-z0-9._-]*$")]
    pub token: String,
    #[schema(max_length = 50, pattern = "^[a-z-]*$", examples("paddock-cli"))]
    pub client_id: String,
}

/// What was wrong, as OAuth says it (RFC 6749).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OAuthError {
    #[schema(max_length = 50, pattern = "^[a-z_]+$", examples("invalid_grant"))]
    pub error: String,
    /// What to do.
    #[schema(max_length = 500, pattern = "^[\\x20-\\x7e]*$")]
    pub error_description: String,
}

/// What the authorization server can do, and where (RFC 8414).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorizationServer {
    #[schema(max_length = 300, pattern = "^https?://", examples("http://127.0.0.1:8080"))]
    pub issuer: String,
    #[schema(max_length = 400, pattern = "^https?://")]
    pub authorization_endpoint: String,
    #[schema(max_length = 400, pattern = "^https?://")]
    pub token_endpoint: String,
    #[schema(max_length = 400, pattern = "^https?://")]
    pub device_authorization_endpoint: String,
    #[schema(max_length = 400, pattern = "^https?://")]
    pub revocation_endpoint: String,
    #[schema(max_length = 400, pattern = "^https?://")]
    pub jwks_uri: String,
    #[schema(max_items = 10, inline)]
    pub response_types_supported: Vec<Supported>,
    #[schema(max_items = 10, inline)]
    pub grant_types_supported: Vec<Supported>,
    #[schema(max_items = 10, inline)]
    pub code_challenge_methods_supported: Vec<Supported>,
    #[schema(max_items = 10, inline)]
    pub token_endpoint_auth_methods_supported: Vec<Supported>,
    #[schema(max_items = 10, inline)]
    pub revocation_endpoint_auth_methods_supported: Vec<Supported>,
    pub authorization_response_iss_parameter_supported: bool,
}

/// One thing that the server can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(max_length = 100, pattern = "^[A-Za-z0-9:_-]+$", examples("code"))]
pub struct Supported(pub String);

/// The public halves of the keys that sign access tokens (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeySet {
    #[schema(max_items = 100)]
    pub keys: Vec<PublicKey>,
}

/// One of them: Ed25519 (RFC 8037).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublicKey {
    #[schema(max_length = 3, pattern = "^OKP$", examples("OKP"))]
    pub kty: String,
    #[schema(max_length = 7, pattern = "^Ed25519$", examples("Ed25519"))]
    pub crv: String,
    #[schema(max_length = 3, pattern = "^sig$", examples("sig"))]
    pub r#use: String,
    #[schema(max_length = 5, pattern = "^EdDSA$", examples("EdDSA"))]
    pub alg: String,
    #[schema(max_length = 50, pattern = "^[A-Za-z0-9_-]+$")]
    pub kid: String,
    #[schema(max_length = 43, pattern = "^[A-Za-z0-9_-]{43}$")]
    pub x: String,
}
