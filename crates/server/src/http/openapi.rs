//! The live contract: what the handlers say of themselves, completed by what all operations have in common.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;

use paddock_api::problem::Problem;

use crate::config::Config;

/// The OpenAPI document, ready to be sent.
pub struct Document {
    pub value: Value,
    pub json: Bytes,
    pub yaml: Bytes,
    pub json_etag: String,
    pub yaml_etag: String,
    /// The names of operations, by method and path.
    operations: HashMap<(Method, String), String>,
}

/// An answer that many operations share.
struct Shared {
    status: &'static str,
    name: &'static str,
    description: &'static str,
    code: &'static str,
    detail: &'static str,
}

const fn shared(
    status: &'static str,
    name: &'static str,
    description: &'static str,
    code: &'static str,
    detail: &'static str,
) -> Shared {
    Shared { status, name, description, code, detail }
}

const MALFORMED: Shared = shared(
    "400",
    "Malformed",
    "The request cannot be understood: broken JSON, an unknown member or parameter, a foreign cursor.",
    "malformed_json",
    "The body is not valid JSON: expected value at line 1 column 1.",
);
const UNAUTHENTICATED: Shared = shared(
    "401",
    "Unauthenticated",
    "There is no valid credential.",
    "credential_missing",
    "This needs a credential, and only `Authorization: Bearer <token>` is accepted.",
);
const FORBIDDEN: Shared = shared(
    "403",
    "Forbidden",
    "You may see it, but not do this.",
    "forbidden",
    "You need can_create_tenant on system:paddock. Ask an admin for it.",
);
const NOT_FOUND: Shared = shared(
    "404",
    "NotFound",
    "It does not exist, or you may not see it.",
    "not_found",
    "There is no such tenant, or you may not see it.",
);
const METHOD_NOT_ALLOWED: Shared = shared(
    "405",
    "MethodNotAllowed",
    "The path exists, but not with this method; `Allow` lists those that do.",
    "method_not_allowed",
    "PATCH is not served at this path; the Allow header says what is.",
);
const NOT_ACCEPTABLE: Shared = shared(
    "406",
    "NotAcceptable",
    "The answer is JSON, and you do not accept that.",
    "not_acceptable",
    "This endpoint answers in application/json; accept that.",
);
const TOO_SLOW: Shared = shared(
    "408",
    "BodyTooSlow",
    "The body did not arrive in time.",
    "body_too_slow",
    "The body did not arrive in time.",
);
const CONFLICT: Shared = shared(
    "409",
    "Conflict",
    "It contradicts what is there: a name that is taken, a state that does not allow it, another request under the same Idempotency-Key.",
    "name_taken",
    "A tenant named acme exists already. Choose another name.",
);
const STALE: Shared = shared(
    "412",
    "PreconditionFailed",
    "It was changed since you read it.",
    "precondition_failed",
    "It was changed in the meantime. Read it again and repeat your change on the newest version.",
);
const TOO_LARGE: Shared = shared(
    "413",
    "BodyTooLarge",
    "The body is larger than the limit.",
    "body_too_large",
    "The body is larger than 1048576 bytes.",
);
const UNSUPPORTED: Shared = shared(
    "415",
    "UnsupportedMediaType",
    "The body is of another type than this operation takes.",
    "unsupported_media_type",
    "Send the body as JSON, with Content-Type: application/json.",
);
const INVALID: Shared = shared(
    "422",
    "Invalid",
    "The request is well-formed but not valid; `errors` lists every fault.",
    "invalid_request",
    "The request is well-formed but not valid.",
);
const TOO_MANY: Shared = shared(
    "429",
    "TooManyRequests",
    "You send requests too fast.",
    "rate_limited",
    "You send requests too fast. Wait 1 s.",
);
const INTERNAL: Shared = shared(
    "500",
    "InternalError",
    "Something went wrong on our side.",
    "internal",
    "Something went wrong on our side. Try again; if it stays, give your admin the request id.",
);
const UNAVAILABLE: Shared = shared(
    "503",
    "Unavailable",
    "The server cannot do this right now.",
    "database_unavailable",
    "The database does not answer right now. Try again shortly.",
);

const EVERY: &[Shared] = &[
    MALFORMED,
    UNAUTHENTICATED,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    TOO_SLOW,
    CONFLICT,
    STALE,
    TOO_LARGE,
    UNSUPPORTED,
    INVALID,
    TOO_MANY,
    INTERNAL,
    UNAVAILABLE,
];

/// What needs no credential: the server's word about itself, and the ways to get a credential.
const OPEN_TAGS: &[&str] = &["meta", "sign_in"];

/// What a page may answer when it does not show what was asked for.
const PAGE_REFUSALS: &[&str] = &["400", "403", "404", "408", "413", "415", "422", "429", "500", "503"];

const METHODS: &[&str] = &["get", "post", "put", "delete"];

fn description(config: &Config) -> String {
    format!(
        "\
Paddock deploys emulated Android devices from snapshots, and looks after those snapshots.

Conventions: members are camelCase, times are RFC 3339 in UTC, unknown members are refused. Lists come in pages \
(`limit`, `cursor`). Every error is a problem document (RFC 9457) with a stable `code`. `ETag` and `If-Match` guard \
against lost updates; `Idempotency-Key` makes a POST safe to repeat for 24 hours.

Limits of this server: {} bytes a body, 200 a page, {} requests a minute a caller with a burst of {}, {} failed \
authentications a minute an address, {} s a request, {} streams a caller.",
        config.body_bytes.0,
        config.requests_per_minute.0,
        config.burst.0,
        config.failed_authentications_per_minute.0,
        config.request_time.0.as_secs(),
        config.streams_per_caller.0,
    )
}

impl Document {
    /// Adds to the handlers' own words what every operation has: errors, headers, parameters, security.
    pub fn complete(described: &OpenApi, config: &Config) -> Document {
        let mut document = json!(described);
        document["info"] = json!({
            "title": "Paddock",
            "version": env!("CARGO_PKG_VERSION"),
            "description": description(config),
            "contact": { "name": "Paddock's maintainers", "url": "https://paddock.invalid/" },
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        });
        document["servers"] = json!([{
            "url": "/",
            "description": "The server that serves this document, be it a local one or production.",
            "x-internal": false,
        }]);
        document["security"] = json!([{ "bearer": [] }]);
        document["tags"] = json!([
            { "name": "admins", "description": "Who administers the whole installation." },
            { "name": "api_keys", "description": "What opens the device API." },
            { "name": "audit", "description": "Who did what." },
            { "name": "backups", "description": "What disks held, kept apart from the pool." },
            { "name": "emulators", "description": "Devices that run." },
            { "name": "grants", "description": "What a group was given." },
            { "name": "groups", "description": "People and machines that are given rights together." },
            { "name": "invitations", "description": "Links by which people choose their passwords." },
            { "name": "members", "description": "Who belongs to a tenant." },
            { "name": "meta", "description": "What the server says about itself." },
            { "name": "permissions", "description": "Who one is, and what one may do." },
            { "name": "restores", "description": "Backups that become snapshots again." },
            { "name": "vehicles", "description": "The cars around automotive devices: their properties, and recorded drives." },
            { "name": "retention_policies", "description": "Which snapshots are kept, and which are let go." },
            { "name": "snapshots", "description": "What emulators boot from." },
            { "name": "sign_in", "description": "Pages on which people sign in, and OAuth 2 for their programs." },
            { "name": "streams", "description": "Ways into a device that stay open." },
            { "name": "tenants", "description": "The walls between customers." },
            { "name": "tickets", "description": "What opens a stream where a browser cannot send a credential." },
            { "name": "users", "description": "The people that Paddock knows." },
        ]);
        let mut schemas = vec![(Problem::name().into_owned(), <Problem as utoipa::PartialSchema>::schema())];
        Problem::schemas(&mut schemas);
        for (name, schema) in schemas {
            document["components"]["schemas"][name] = json!(schema);
        }
        document["components"]["securitySchemes"] = json!({ "bearer": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "An access token. Tokens are JWTs that follow RFC8725 and live for 15 minutes.",
        }});
        document["components"]["headers"] = headers();
        document["components"]["parameters"] = parameters();
        for answer in EVERY {
            document["components"]["responses"][answer.name] = answer.describe();
        }
        document["components"]["responses"]["Page"] = page_refusal(false);
        document["components"]["responses"]["PageLater"] = page_refusal(true);
        for (path, operations) in document["paths"].as_object_mut().into_iter().flatten() {
            for method in METHODS {
                if operations[*method].is_object() {
                    complete_operation(path, method, &mut operations[*method]);
                }
            }
        }
        Document::new(document)
    }

    /// The name of an operation, such as `tenants.create`.
    pub fn operation(&self, method: &Method, route: &str) -> &str {
        self.operations.get(&(method.clone(), route.to_owned())).map_or("unknown", String::as_str)
    }

    fn new(mut value: Value) -> Document {
        closed(&mut value["components"]["schemas"]);
        let mut json = serde_json::to_string_pretty(&value).unwrap_or_default();
        json.push('\n');
        let yaml = yaml_serde::to_string(&value).unwrap_or_default();
        let etag = |text: &str| {
            let sum = digest(&SHA256, text.as_bytes());
            let hex: String = sum.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            format!("\"{hex}\"")
        };
        Document {
            operations: operations(&value),
            json_etag: etag(&json),
            yaml_etag: etag(&yaml),
            json: json.into(),
            yaml: yaml.into(),
            value,
        }
    }
}

fn operations(document: &Value) -> HashMap<(Method, String), String> {
    let mut names = HashMap::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            if let (Ok(method), Some(name)) =
                (method.to_uppercase().parse(), operation["operationId"].as_str())
            {
                names.insert((method, path.clone()), name.to_owned());
            }
        }
    }
    names
}

/// Objects have the members they name, and no others.
fn closed(schemas: &mut Value) {
    for schema in schemas.as_object_mut().into_iter().flat_map(|schemas| schemas.values_mut()) {
        if schema["properties"].is_object() {
            schema["additionalProperties"] = json!(false);
        }
    }
}

impl Shared {
    fn describe(&self) -> Value {
        let status: u16 = self.status.parse().unwrap_or(500);
        let mut example = json!({
            "type": format!("urn:paddock:problem:{}", self.code),
            "title": http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error"),
            "status": status,
            "detail": self.detail,
            "instance": "/api/v1/tenants",
            "code": self.code,
            "requestId": "5f2c9a01-1c",
        });
        if status == 422 {
            example["errors"] =
                json!([{ "pointer": "/name", "code": "required", "message": "\"name\" is missing" }]);
        }
        let mut headers = common_headers();
        let mut has = |name: &str| headers[name] = json!({ "$ref": format!("#/components/headers/{name}") });
        match status {
            401 => has("WWW-Authenticate"),
            405 => has("Allow"),
            429 | 503 => has("Retry-After"),
            _ => {}
        }
        json!({
            "description": self.description,
            "headers": headers,
            "content": { "application/problem+json": {
                "schema": { "$ref": "#/components/schemas/Problem" },
                "example": example,
            }},
        })
    }
}

/// Things that are there or not, and are never changed; and a car, which is changed by many all the time.
const UNVERSIONED: &[&str] =
    &["admins", "api_keys", "grants", "invitations", "members", "tickets", "vehicles"];

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    let tag = operation["tags"][0].as_str().unwrap_or_default().to_owned();
    let act = operation["operationId"].as_str().unwrap_or_default().to_owned();
    // One act, one name: the handler's, behind its noun.
    operation["operationId"] = json!(format!("{tag}.{act}"));
    if operation["description"].is_null() {
        operation["description"] = json!(format!("{}.", operation["summary"].as_str().unwrap_or_default()));
    }
    let guarded = !OPEN_TAGS.contains(&tag.as_str());
    let page = is_page(operation);
    if !guarded {
        operation["security"] = json!([{}]);
    }
    // Groups have a version of their own; who is in them has not.
    let unversioned =
        UNVERSIONED.contains(&tag.as_str()) || act.ends_with("_member") || act == "list_members";
    let changes_permissions = method != "get"
        && (unversioned || tag == "groups")
        && !matches!(tag.as_str(), "api_keys" | "invitations" | "tickets" | "vehicles");
    let names_one = path.ends_with('}');
    let has_body = operation["requestBody"].is_object();
    // What a POST answers with 200 is no resource, and has no version.
    let versioned = |status: &str| {
        guarded
            && !unversioned
            && (status == "201" || status == "200" && (method == "put" || names_one && method == "get"))
    };

    for (status, answer) in operation["responses"].as_object_mut().into_iter().flatten() {
        let mut headers = common_headers();
        if versioned(status) {
            headers["ETag"] = json!({ "$ref": "#/components/headers/ETag" });
        }
        if status == "201" {
            headers["Location"] = json!({ "$ref": "#/components/headers/Location" });
        }
        if changes_permissions {
            headers["Paddock-Revision"] = json!({ "$ref": "#/components/headers/Paddock-Revision" });
        }
        if status == "303" {
            headers["Location"] = redirect_header();
        }
        if status == "503" {
            headers["Retry-After"] = json!({ "$ref": "#/components/headers/Retry-After" });
        }
        answer["headers"] = headers;
    }
    for status in PAGE_REFUSALS.iter().filter(|_| page) {
        let name = if matches!(*status, "429" | "503") { "PageLater" } else { "Page" };
        operation["responses"][*status] = json!({ "$ref": format!("#/components/responses/{name}") });
    }
    // A body that may be left out is still an object where it is sent.
    if let Some(sent) = operation.pointer_mut("/requestBody/content/application~1json/schema")
        && let Some(body) = sent["oneOf"].as_array().and_then(|kinds| kinds.first()).cloned()
    {
        *sent = body;
    }
    let mut answers: Vec<&Shared> = vec![&MALFORMED, &METHOD_NOT_ALLOWED, &TOO_MANY, &INTERNAL, &UNAVAILABLE];
    let mut parameters: Vec<&str> = vec!["X-Request-Id"];
    if guarded {
        answers.extend([&UNAUTHENTICATED, &FORBIDDEN, &NOT_ACCEPTABLE]);
    }
    // A body may name what is not there, too, and so may a query.
    if guarded && (path.contains('{') || has_body || path.ends_with("/tree")) {
        answers.push(&NOT_FOUND);
    }
    if has_body {
        answers.extend([&TOO_SLOW, &TOO_LARGE, &UNSUPPORTED]);
    }
    if has_body && guarded {
        answers.push(&INVALID);
    }
    // A device that does not run cannot be connected to, and a phone has no vehicle.
    if guarded && (method != "get" || matches!(tag.as_str(), "streams" | "vehicles")) {
        answers.push(&CONFLICT);
    }
    match method {
        "post" if guarded => parameters.push("Idempotency-Key"),
        "put" | "delete" if !unversioned => {
            parameters.push("If-Match");
            answers.push(&STALE);
        }
        "get" if names_one && !unversioned => {
            parameters.push("If-None-Match");
            operation["responses"]["304"] =
                json!({ "description": "You have this version already.", "headers": common_headers() });
        }
        _ => {}
    }
    for answer in answers {
        if operation["responses"][answer.status].is_null() {
            operation["responses"][answer.status] =
                json!({ "$ref": format!("#/components/responses/{}", answer.name) });
        }
    }
    if operation["parameters"].is_null() {
        operation["parameters"] = json!([]);
    }
    let references =
        parameters.iter().map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }));
    operation["parameters"].as_array_mut().into_iter().for_each(|list| list.extend(references.clone()));
}

/// Whether an operation is for people at a browser.
fn is_page(operation: &Value) -> bool {
    let responses = operation["responses"].as_object();
    responses.is_some_and(|responses| {
        responses.contains_key("303")
            || responses.values().any(|answer| answer["content"]["text/html"].is_object())
    })
}

fn page_refusal(later: bool) -> Value {
    let mut headers = common_headers();
    if later {
        headers["Retry-After"] = json!({ "$ref": "#/components/headers/Retry-After" });
    }
    json!({
        "description": "What went wrong, in words: on the page with the form, or on one of its own.",
        "headers": headers,
        "content": {
            "text/html": { "schema": { "$ref": "#/components/schemas/Text" } },
            "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } },
        },
    })
}

fn redirect_header() -> Value {
    json!({
        "description": "Where to go on.",
        "schema": { "type": "string", "maxLength": 4096, "pattern": "^(/|http://)" },
        "example": "/sign-in",
    })
}

fn common_headers() -> Value {
    json!({
        "X-Request-Id": { "$ref": "#/components/headers/X-Request-Id" },
        "RateLimit": { "$ref": "#/components/headers/RateLimit" },
        "Access-Control-Allow-Origin": { "$ref": "#/components/headers/Access-Control-Allow-Origin" },
    })
}

fn headers() -> Value {
    let text = |description: &str, pattern: &str, example: &str| json!({ "description": description, "schema": { "type": "string", "maxLength": 200, "pattern": pattern }, "example": example });
    json!({
        "X-Request-Id": text("Names this request in the server's log.", "^[A-Za-z0-9._-]+$", "5f2c9a01-1c"),
        "RateLimit": text("How many requests you may send at once now; on answers to a valid credential.", "^\"requests\";r=[0-9]+$", "\"requests\";r=599"),
        "Access-Control-Allow-Origin": text("The page's origin, if it is one of those that are configured.", "^https?://[^/]+$", "https://console.example.com"),
        "ETag": text("The version, for If-Match and If-None-Match.", "^\"[0-9a-f]+\"$", "\"3\""),
        "Paddock-Revision": text("How far permissions are known now; pass it as `atLeastRevision` to ask with this change known.", "^r-[0-9]+$", "r-18442"),
        "Location": text("Where the new thing is.", "^/api/v1/", "/api/v1/tenants/ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        "Allow": text("The methods that are served here.", "^[A-Z]+(, ?[A-Z]+)*$", "GET,HEAD"),
        "WWW-Authenticate": text("How to authenticate.", "^Bearer ", "Bearer realm=\"paddock\""),
        "Retry-After": {
            "description": "How many seconds to wait.",
            "schema": { "type": "integer", "format": "int32", "minimum": 1, "maximum": 86400 },
            "example": 1,
        },
    })
}

fn parameters() -> Value {
    let header = |name: &str, description: &str, length: u32, pattern: &str, example: &str| {
        json!({
            "name": name, "in": "header", "required": false, "description": description, "example": example,
            "schema": { "type": "string", "maxLength": length, "pattern": pattern },
        })
    };
    json!({
        "X-Request-Id": header("X-Request-Id", "A name of your own for this request; one that cannot be used is replaced.", 64, "^[A-Za-z0-9._-]+$", "ci-job-42"),
        "Idempotency-Key": header("Idempotency-Key", "The same key with the same request is carried out once and answered the same for 24 hours.", 255, "^[\\x21-\\x7e]([\\x20-\\x7e]*[\\x21-\\x7e])?$", "1b9d6bcd-bbfd-4b2d"),
        "If-Match": header("If-Match", "Only if this is still its version.", 200, "^(\\*|\"[0-9]+\"(, ?\"[0-9]+\")*)$", "\"3\""),
        "If-None-Match": header("If-None-Match", "Only if this is not its version any more.", 200, "^(\\*|(W/)?\"[0-9a-f]+\"(, ?(W/)?\"[0-9a-f]+\")*)$", "\"3\""),
    })
}
