//! The audit: who did what, by which credential, and what became of it.

use axum::Json;
use axum::extract::State;
use paddock_api::audit::{Event, EventPage, ListEvents, Outcome};
use paddock_engine::audit;
use paddock_model::audit as model;
use paddock_model::tenants::TenantId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::cursor::Listing;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::tenant::TenantHint;
use super::conventions::time::{moment, time};
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// List what was done
///
/// Every change and every refusal in the tenants whose audit you may see, newest first.
#[utoipa::path(get, path = "/audit", tag = "audit", params(ListEvents), responses((status = 200, body = EventPage, description = "A page of events.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    TenantHint(hint): TenantHint,
    Query(query): Query<ListEvents>,
) -> Answer<Json<EventPage>> {
    app.rates.count_costly(&caller.subject)?;
    let filters = ListEvents { limit: None, cursor: None, ..query.clone() };
    let listing = Listing::of("audit", &(filters, hint));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = model::EventFilter {
        tenant: query.tenant_id.as_deref().and_then(TenantId::parse).or(hint),
        actor: query.actor,
        action: query.action,
        object: query.object,
        outcome: query.outcome.map(|outcome| match outcome {
            Outcome::Done => model::Outcome::Done,
            Outcome::Refused => model::Outcome::Refused,
        }),
        since: moment("since", query.since.as_deref())?,
        until: moment("until", query.until.as_deref())?,
    };
    let page = audit::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(EventPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

fn wire(event: model::Event) -> Event {
    Event {
        id: event.id.to_string(),
        tenant_id: event.tenant.map(|tenant| tenant.to_string()),
        number: event.number,
        occurred_at: time(event.at),
        actor: event.actor,
        credential: event.credential,
        credential_id: event.credential_id,
        action: event.action,
        object: event.object,
        outcome: match event.outcome {
            model::Outcome::Done => Outcome::Done,
            model::Outcome::Refused => Outcome::Refused,
        },
        code: event.code,
        request_id: event.request_id,
        address: event.address,
        details: serde_json::from_str(&event.details).unwrap_or_default(),
    }
}
