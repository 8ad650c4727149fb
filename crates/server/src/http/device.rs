//! The page on which a person lets a machine without a browser act for them.

use axum::extract::State;
use axum::response::Response;
use paddock_api::meta::Text;
use paddock_api::sign_in::{DeviceForm, ShowDevice};
use paddock_engine::device_authorizations;
use paddock_model::authorizations::Client;
use paddock_model::device_authorizations::{DeviceAuthorization, read_user_code, show_user_code};
use paddock_model::error::Kind;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::browser::{Posted, Visitor, encode, read_query};
use super::pages::{Escaped, Page, PageAnswer};

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(show_device, decide_device))
}

/// The page to let a machine sign in
#[utoipa::path(get, path = "/device", tag = "sign_in", params(ShowDevice), responses(
    (status = 200, body = Text, content_type = "text/html", description = "The page: asks for the code, or with a good one for the decision."),
    (status = 303, description = "Nobody is signed in.")))]
async fn show_device(State(app): State<App>, visitor: Visitor, uri: http::Uri) -> PageAnswer<Response> {
    let query = read_query(&uri)?;
    let typed = query.text("user_code");
    if visitor.signed_in.is_none() {
        let return_to = if typed.is_empty() {
            "/device".to_owned()
        } else {
            format!("/device?user_code={}", encode(typed))
        };
        return Ok(visitor.to_sign_in(&return_to, false));
    }
    if typed.is_empty() {
        return Ok(visitor.show(code_page("")));
    }
    match device_authorizations::find(&app.engine, typed).await {
        Ok(asked) => Ok(visitor.show(decision_page(&visitor, &asked, typed))),
        Err(error) if error.kind == Kind::NotFound => {
            app.rates.count_failed_authentication(visitor.address)?;
            Ok(visitor.show(code_page(typed).refused(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

fn code_page(typed: &str) -> Page {
    let body = format!(
        "<form method=\"get\" action=\"/device\">\n<label for=\"user_code\">Code that the machine shows</label>\n\
         <input class=\"code\" id=\"user_code\" name=\"user_code\" value=\"{}\" placeholder=\"WDJB-MJHT\" autocomplete=\"off\" autocapitalize=\"characters\" \
         spellcheck=\"false\" maxlength=\"20\" required autofocus aria-describedby=\"error\">\n<button>Go on</button>\n</form>",
        Escaped(typed)
    );
    Page::new("Let a machine sign in", body)
}

fn decision_page(visitor: &Visitor, asked: &DeviceAuthorization, typed: &str) -> Page {
    let code = read_user_code(typed).map(|code| show_user_code(&code)).unwrap_or_default();
    let name = Client::find(&asked.client).map_or(asked.client.as_str(), |client| client.name);
    let who = visitor.signed_in.as_ref().map_or("", |signed_in| signed_in.user.name.as_str());
    let asked_at = asked.created_at.strftime("%Y-%m-%d %H:%M UTC").to_string();
    let body = format!(
        "<p>{} wants to act for you. It may do everything that you may.</p>\n\
         <dl><dt>You are</dt><dd>{}</dd><dt>Code</dt><dd>{}</dd><dt>Asked from</dt><dd>{}</dd><dt>Asked at</dt><dd>{}</dd></dl>\n\
         <p><strong>Allow it only if you have started this yourself just now</strong> and the machine shows this very code. \
         Nobody who helps you needs it.</p>\n\
         <form method=\"post\" action=\"/device\">\n{}<input type=\"hidden\" name=\"user_code\" value=\"{}\">\n\
         <button name=\"decision\" value=\"allow\">Allow</button>\n<button class=\"quiet\" name=\"decision\" value=\"deny\">Decline</button>\n</form>",
        Escaped(name),
        Escaped(who),
        Escaped(&code),
        Escaped(asked.address.as_deref().unwrap_or("unknown")),
        Escaped(&asked_at),
        visitor.form_field(),
        Escaped(&code),
    );
    Page::new("Let a machine sign in", body)
}

/// Let a machine sign in, or not
#[utoipa::path(post, path = "/device", tag = "sign_in", request_body(content = DeviceForm, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 200, body = Text, content_type = "text/html", description = "The decision is known to the machine."),
    (status = 303, description = "Nobody is signed in.")))]
async fn decide_device(State(app): State<App>, posted: Posted) -> PageAnswer<Response> {
    let Posted { visitor, fields } = posted;
    let Some(signed_in) = &visitor.signed_in else { return Ok(visitor.to_sign_in("/device", false)) };
    let allow = fields.text("decision") == "allow";
    let typed = fields.text("user_code");
    let decided = device_authorizations::decide(&app.engine, visitor.actor(), signed_in, typed, allow).await;
    match decided {
        Ok(()) => {
            let words = if allow { "The machine is signed in." } else { "The machine was turned away." };
            let body = format!(
                "<p class=\"notice\" role=\"status\">{words} You can close this page.</p>\n<a class=\"button quiet\" href=\"/\">To the start</a>"
            );
            Ok(visitor.show(Page::new("Done", body)))
        }
        Err(error) if error.kind == Kind::NotFound => {
            app.rates.count_failed_authentication(visitor.address)?;
            Ok(visitor.show(code_page(typed).refused(&error)))
        }
        Err(error) => Err(error.into()),
    }
}
