//! The tenant that a request is about, where its path does not say: the X-Paddock-Tenant header.

use axum::extract::FromRequestParts;
use http::request::Parts;
use paddock_model::Error;
use paddock_model::tenants::TenantId;

use super::problem::Failure;

pub const HEADER: &str = "x-paddock-tenant";

/// The tenant that the header names.
pub struct TenantHint(pub Option<TenantId>);

impl<S: Send + Sync> FromRequestParts<S> for TenantHint {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Some(value) = parts.headers.get(HEADER) else { return Ok(TenantHint(None)) };
        let id = value.to_str().ok().and_then(TenantId::parse);
        let refused = || {
            let detail = "X-Paddock-Tenant wants a tenant's id, such as ten_01jcr8e8v0e9bvqz3tz4d0wq2h.";
            Error::malformed("invalid_tenant", detail).into()
        };
        id.map(|id| TenantHint(Some(id))).ok_or_else(refused)
    }
}
