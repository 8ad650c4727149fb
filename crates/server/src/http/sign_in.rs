//! Sign-in: the pages by which people with an account here sign in, sign out, and look after their password.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use paddock_api::meta::Text;
use paddock_api::sign_in::{
    InvitationForm, PasswordForm, ShowInvitation, ShowSignIn, SignInForm, SignOutForm,
};
use paddock_engine::audit::{self, Refusal};
use paddock_engine::sessions::{self, SignedIn, Tried};
use paddock_engine::{invitations, passwords, permissions, tenants};
use paddock_model::caller::Caller;
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::error::{Fault, Kind};
use paddock_model::page::PageRequest;
use paddock_model::permissions::Object;
use paddock_model::scopes::Scope;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantFilter;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::browser::{Fields, Posted, Visitor, read_query, redirect, redirect_with_session, safe_path};
use super::external_sign_in;
use super::pages::{Escaped, Page, PageAnswer, STYLE};
use crate::auth::issuers::Issuer;

/// So many tenants the start page names.
const MOST_TENANTS: u32 = 10;

/// How sign-in is set up.
pub struct SignIn {
    public_url: Option<String>,
    pub session: Duration,
    issuer: Option<Arc<Issuer>>,
}

impl SignIn {
    pub fn new(public_url: Option<String>, session: Duration, issuer: Option<Arc<Issuer>>) -> Self {
        SignIn { public_url, session, issuer }
    }

    /// The address by which people and programs know this server, if it was configured.
    pub fn public_url(&self) -> Option<&str> {
        self.public_url.as_deref()
    }

    /// The identity provider where people sign in instead of on our own form, if one is configured.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(home))
        .routes(routes!(show_sign_in, sign_in))
        .routes(routes!(style))
        .routes(routes!(sign_out))
        .routes(routes!(show_password, change_password))
        .routes(routes!(show_invitation, accept_invitation))
}

/// The start page
///
/// Who is signed in, and what they can do here; without a session, the way to the sign-in page.
#[utoipa::path(get, path = "/", tag = "sign_in", responses(
    (status = 200, body = Text, content_type = "text/html", description = "The page."),
    (status = 303, description = "Nobody is signed in.")))]
async fn home(State(app): State<App>, visitor: Visitor) -> PageAnswer<Response> {
    let Some(signed_in) = &visitor.signed_in else { return Ok(redirect("/sign-in")) };
    let caller = Caller {
        subject: Subject::from(&signed_in.user),
        // A session sees what a token of the same sign-in would.
        credential: Arc::new(Credential::new(CredentialKind::AccessToken)),
        address: Some(visitor.address),
        request_id: visitor.actor().request_id.into(),
        once: None,
    };
    let page = PageRequest { limit: MOST_TENANTS, after: None };
    let tenants = tenants::list(&app.engine, &caller, &TenantFilter::default(), page).await?;
    let mut rows = format!("<dt>Name</dt><dd>{}</dd>", Escaped(&signed_in.user.name));
    for (term, text) in [("Login", signed_in.user.login()), ("E-mail", signed_in.user.email.as_deref())] {
        if let Some(text) = text {
            let _ = write!(rows, "<dt>{term}</dt><dd>{}</dd>", Escaped(text));
        }
    }
    let id = signed_in.user.id;
    let _ = write!(rows, "<dt>Account</dt><dd id=\"account\">{id}</dd>");
    let mut names: Vec<&str> = tenants.items.iter().map(|tenant| tenant.name.as_str()).collect();
    names.extend(tenants.next.map(|_| "and others"));
    let next = if !names.is_empty() {
        let _ = write!(rows, "<dt>Tenants</dt><dd>{}</dd>", Escaped(&names.join(", ")));
        String::new()
    } else if permissions::scope(&app.engine, &caller) == Scope::Everything {
        "<p>There is no tenant yet. Make the first: <code>paddock tenant create acme</code></p>\n".to_owned()
    } else {
        format!(
            "<p>You belong to no tenant yet. Ask an admin of one to let you in by your account: <code>paddock member add --tenant acme --user {id} --role member</code></p>\n"
        )
    };
    let password = match signed_in.user.login() {
        Some(_) => "<a class=\"button quiet\" href=\"/account/password\">Change your password</a>",
        None => "",
    };
    let body = format!(
        "<dl>{rows}</dl>\n{next}{password}\n<form method=\"post\" action=\"/sign-out\">{}<button class=\"quiet\">Sign out</button></form>\n\
         <footer>There is no console yet. Use <code>paddock auth login</code>, or the \
         <a href=\"/-/openapi/schema?format=yaml\">API</a>.</footer>",
        visitor.form_field()
    );
    Ok(visitor.show(Page::new("You are signed in", body)))
}

/// The stylesheet of the pages
#[utoipa::path(get, path = "/sign-in/style.css", tag = "sign_in", responses((status = 200, body = Text, content_type = "text/css", description = "The stylesheet.")))]
async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "public, max-age=300")], STYLE)
        .into_response()
}

/// The page to sign in
#[utoipa::path(get, path = "/sign-in", tag = "sign_in", params(ShowSignIn), responses(
    (status = 200, body = Text, content_type = "text/html", description = "The page."),
    (status = 303, description = "Somebody is signed in already, or signs in at an identity provider.")))]
async fn show_sign_in(State(app): State<App>, visitor: Visitor, uri: http::Uri) -> PageAnswer<Response> {
    let query = read_query(&uri)?;
    let return_to = safe_path(query.text("return_to")).unwrap_or("/");
    let again = query.get("again").is_some();
    if visitor.signed_in.is_some() && !again {
        return Ok(redirect(return_to));
    }
    // Accounts here still work for who asks for the form, such as the first admin while the provider is away.
    if let Some(issuer) = app.sign_in.issuer()
        && query.get("local").is_none()
    {
        if query.get("signed_out").is_some() {
            return Ok(external_sign_in::signed_out(&visitor, issuer).await);
        }
        return external_sign_in::begin(&app, &visitor, issuer, return_to, again).await;
    }
    Ok(visitor.show(sign_in_page(&visitor, return_to, "")))
}

fn sign_in_page(visitor: &Visitor, return_to: &str, login: &str) -> Page {
    // Who proves once more who they are need not say it again.
    let login = visitor.signed_in.as_ref().and_then(|signed_in| signed_in.user.login()).unwrap_or(login);
    let (on_login, on_password) = if login.is_empty() { (" autofocus", "") } else { ("", " autofocus") };
    let body = format!(
        "<form method=\"post\" action=\"/sign-in\">\n{}<input type=\"hidden\" name=\"return_to\" value=\"{}\">\n\
         <label for=\"login\">Login</label>\n\
         <input id=\"login\" name=\"login\" value=\"{}\" autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" maxlength=\"200\" required aria-describedby=\"error\"{on_login}>\n\
         <label for=\"password\">Password</label>\n\
         <input id=\"password\" name=\"password\" type=\"password\" autocomplete=\"current-password\" maxlength=\"1024\" required aria-describedby=\"error\"{on_password}>\n\
         <button>Sign in</button>\n</form>",
        visitor.form_field(),
        Escaped(return_to),
        Escaped(login),
    );
    Page::new("Sign in", body)
}

/// Sign in
#[utoipa::path(post, path = "/sign-in", tag = "sign_in", request_body(content = SignInForm, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 303, description = "Signed in; the session is in a cookie.")))]
async fn sign_in(State(app): State<App>, posted: Posted) -> PageAnswer<Response> {
    let Posted { visitor, mut fields } = posted;
    let (login, password) = (fields.take("login"), fields.take("password"));
    let return_to = safe_path(fields.text("return_to")).unwrap_or("/").to_owned();
    let before = visitor.session_secret.as_deref();
    // Before the password is looked at: over the limit not even the right one tells that it is.
    if let Err(too_many) = app.rates.count_failed_authentication(visitor.address) {
        return Ok(visitor.show(sign_in_page(&visitor, &return_to, &login).refused(&too_many)));
    }
    match sessions::create(&app.engine, visitor.actor(), &login, password, before).await {
        Ok((_, secret)) => {
            app.rates.forgive(visitor.address);
            Ok(redirect_with_session(&return_to, Some((&secret, app.sign_in.session))))
        }
        Err(error) if is_refusal(&error) => {
            let tried = Tried::Login(&login);
            sessions::refuse(&app.engine, visitor.actor(), tried, error.code).await?;
            Ok(visitor.show(sign_in_page(&visitor, &return_to, &login).refused(&error)))
        }
        Err(error) => {
            app.rates.forgive(visitor.address);
            Err(error.into())
        }
    }
}

/// Sign out
#[utoipa::path(post, path = "/sign-out", tag = "sign_in", request_body(content = SignOutForm, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 303, description = "Signed out; the session is over on the server, too.")))]
async fn sign_out(State(app): State<App>, posted: Posted) -> PageAnswer<Response> {
    if let Some(signed_in) = &posted.visitor.signed_in {
        sessions::delete(&app.engine, posted.visitor.actor(), signed_in).await?;
    }
    let to = app.sign_in.issuer().map_or("/sign-in", |_| "/sign-in?signed_out=1");
    Ok(redirect_with_session(to, None))
}

/// The page to change one's password
#[utoipa::path(get, path = "/account/password", tag = "sign_in", responses(
    (status = 200, body = Text, content_type = "text/html", description = "The page."),
    (status = 303, description = "Nobody is signed in.")))]
async fn show_password(visitor: Visitor) -> PageAnswer<Response> {
    if visitor.signed_in.is_none() {
        return Ok(visitor.to_sign_in("/account/password", false));
    }
    Ok(visitor.show(password_page(&visitor)))
}

fn password_page(visitor: &Visitor) -> Page {
    let login = visitor.signed_in.as_ref().and_then(|signed_in| signed_in.user.login()).unwrap_or_default();
    let body = format!(
        "<p>You stay signed in here, and are signed out everywhere else.</p>\n\
         <form method=\"post\" action=\"/account/password\">\n{}\
         <input type=\"hidden\" name=\"login\" value=\"{}\" autocomplete=\"username\">\n\
         <label for=\"old_password\">Password until now</label>\n\
         <input id=\"old_password\" name=\"old_password\" type=\"password\" autocomplete=\"current-password\" maxlength=\"1024\" required autofocus aria-describedby=\"error\">\n\
         {}<button>Change the password</button>\n<a class=\"button quiet\" href=\"/\">Back</a>\n</form>",
        visitor.form_field(),
        Escaped(login),
        new_password_fields(""),
    );
    Page::new("Change your password", body)
}

fn new_password_fields(focus: &str) -> String {
    format!(
        "<label for=\"password\">New password</label>\n\
         <input id=\"password\" name=\"password\" type=\"password\" autocomplete=\"new-password\" minlength=\"12\" maxlength=\"256\" required aria-describedby=\"rule error\"{focus}>\n\
         <p class=\"hint\" id=\"rule\">At least 12 characters. A few words are easier to remember than signs.</p>\n\
         <label for=\"repeated\">New password, once more</label>\n\
         <input id=\"repeated\" name=\"repeated\" type=\"password\" autocomplete=\"new-password\" minlength=\"12\" maxlength=\"256\" required aria-describedby=\"error\">\n"
    )
}

/// Change one's password
#[utoipa::path(post, path = "/account/password", tag = "sign_in", request_body(content = PasswordForm, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 200, body = Text, content_type = "text/html", description = "The password is changed; all other sessions and all refresh tokens have ended."),
    (status = 303, description = "Nobody is signed in.")))]
async fn change_password(State(app): State<App>, posted: Posted) -> PageAnswer<Response> {
    let Posted { visitor, mut fields } = posted;
    let Some(signed_in) = &visitor.signed_in else {
        return Ok(visitor.to_sign_in("/account/password", false));
    };
    // Before the old one is looked at, as when signing in.
    if let Err(too_many) = app.rates.count_failed_authentication(visitor.address) {
        return Ok(visitor.show(password_page(&visitor).refused(&too_many)));
    }
    let replaced = replace_password(&app, &visitor, signed_in, &mut fields).await;
    let guessed =
        replaced.as_ref().is_err_and(|error| matches!(error.kind, Kind::Unauthenticated | Kind::TooMany));
    if !guessed {
        app.rates.forgive(visitor.address);
    }
    match replaced {
        Ok(()) => {
            let body = "<p class=\"notice\" role=\"status\">The password is changed. Everywhere else you are signed out.</p>\n\
                        <a class=\"button\" href=\"/\">Go on</a>";
            Ok(visitor.show(Page::new("Done", body.to_owned())))
        }
        Err(error) if is_refusal(&error) => {
            if guessed {
                let object = signed_in.user.object().to_string();
                refuse(&app, &visitor, "passwords.update", object, error.code).await?;
            }
            Ok(visitor.show(password_page(&visitor).refused(&said_of_old_password(error))))
        }
        Err(error) => Err(error.into()),
    }
}

/// Tells the audit what was refused. Only what was counted before, or a stranger could fill it.
async fn refuse(app: &App, visitor: &Visitor, action: &str, object: String, code: &str) -> Result<()> {
    let (actor, action, code) = (visitor.actor(), action.to_owned(), code.to_owned());
    audit::refuse(&app.engine, vec![Refusal { actor, action, tenant: None, object, code }]).await
}

async fn replace_password(
    app: &App,
    visitor: &Visitor,
    signed_in: &SignedIn,
    fields: &mut Fields,
) -> Result<()> {
    let (old, new) = (fields.take("old_password"), new_password(fields)?);
    passwords::change(&app.engine, visitor.actor(), &signed_in.user, signed_in.session.id, old, new).await
}

fn said_of_old_password(error: Error) -> Error {
    if error.kind == Kind::Unauthenticated {
        return Error::unauthenticated("wrong_password", "The password until now is another one.");
    }
    error
}

fn new_password(fields: &mut Fields) -> Result<String> {
    let (password, repeated) = (fields.take("password"), fields.take("repeated"));
    if password == repeated {
        return Ok(password);
    }
    let message = "the two new passwords differ".to_owned();
    Err(Error::invalid(vec![Fault { pointer: "/repeated".to_owned(), code: "differs".into(), message }]))
}

/// The page to accept an invitation
#[utoipa::path(get, path = "/invitation", tag = "sign_in", params(ShowInvitation), responses(
    (status = 200, body = Text, content_type = "text/html", description = "The page.")))]
async fn show_invitation(State(app): State<App>, visitor: Visitor, uri: http::Uri) -> PageAnswer<Response> {
    let query = read_query(&uri)?;
    let token = query.text("token");
    match invitations::find(&app.engine, token).await {
        Ok(user) => Ok(visitor.show(invitation_page(&visitor, &user, token))),
        Err(error) => Err(counted(&app, &visitor, error).await?.into()),
    }
}

/// A link that is not good may be a guess.
async fn counted(app: &App, visitor: &Visitor, error: Error) -> Result<Error> {
    if error.kind == Kind::NotFound {
        app.rates.count_failed_authentication(visitor.address)?;
        let object = Object::system().to_string();
        refuse(app, visitor, "invitations.accept", object, error.code).await?;
    }
    Ok(error)
}

fn invitation_page(visitor: &Visitor, user: &paddock_model::users::User, token: &str) -> Page {
    let login = user.login().unwrap_or_default();
    let body = format!(
        "<p>Welcome, {}. Choose a password for your account.</p>\n\
         <form method=\"post\" action=\"/invitation\">\n{}<input type=\"hidden\" name=\"token\" value=\"{}\">\n\
         <label for=\"login\">Login</label>\n<input id=\"login\" name=\"login\" value=\"{}\" autocomplete=\"username\" readonly>\n\
         {}<button>Begin</button>\n</form>",
        Escaped(&user.name),
        visitor.form_field(),
        Escaped(token),
        Escaped(login),
        new_password_fields(" autofocus"),
    );
    Page::new("Your invitation", body)
}

/// Accept an invitation
#[utoipa::path(post, path = "/invitation", tag = "sign_in", request_body(content = InvitationForm, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 303, description = "The account has its password and is signed in; the link works no more.")))]
async fn accept_invitation(State(app): State<App>, posted: Posted) -> PageAnswer<Response> {
    let Posted { visitor, mut fields } = posted;
    let token = fields.take("token");
    let user = match invitations::find(&app.engine, &token).await {
        Ok(user) => user,
        Err(error) => return Err(counted(&app, &visitor, error).await?.into()),
    };
    let accepted = match new_password(&mut fields) {
        Ok(password) => invitations::accept(&app.engine, visitor.actor(), &token, password).await,
        Err(error) => Err(error),
    };
    match accepted {
        Ok(user) => {
            let before = visitor.session_secret.as_deref();
            let (_, secret) =
                sessions::open(&app.engine, visitor.actor(), user.id, app.engine.now(), before).await?;
            Ok(redirect_with_session("/", Some((&secret, app.sign_in.session))))
        }
        Err(error) if error.kind == Kind::Invalid => {
            Ok(visitor.show(invitation_page(&visitor, &user, &token).refused(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

/// What a page can say beside its form; everything else is no fault of who filled it in.
fn is_refusal(error: &Error) -> bool {
    !matches!(error.kind, Kind::Internal | Kind::Unavailable)
}
