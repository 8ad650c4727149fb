//! Query parameters: known, once each, and valid by the published schema.

use axum::extract::FromRequestParts;
use http::request::Parts;
use paddock_model::Error;
use paddock_model::error::Fault;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;

use super::problem::Failure;
use crate::http::App;

pub struct Query<T>(pub T);

impl<T: DeserializeOwned + IntoParams + 'static> FromRequestParts<App> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default();
        let schema = schema::<T>();
        let (value, mut faults) = read(query, &schema)?;
        faults.extend(app.schemas.faults::<T>(&value, || schema)?);
        if faults.is_empty() {
            return Ok(Query(
                serde_json::from_value(value)
                    .map_err(|error| refused(vec![fault("", "invalid", error.to_string())]))?,
            ));
        }
        Err(refused(faults).into())
    }
}

fn refused(faults: Vec<Fault>) -> Error {
    Error::malformed("invalid_parameter", "A query parameter is not valid; see errors.").with_faults(faults)
}

fn fault(name: &str, code: &'static str, message: String) -> Fault {
    Fault { pointer: format!("/{name}"), code: code.into(), message }
}

/// The parameters as the properties of one object.
fn schema<T: IntoParams>() -> Value {
    let parameters = T::into_params(|| Some(ParameterIn::Query));
    let properties: Map<String, Value> =
        parameters.into_iter().map(|parameter| (parameter.name, json!(parameter.schema))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// The query as an object, each text read as its schema says.
fn read(query: &str, schema: &Value) -> Result<(Value, Vec<Fault>), Error> {
    let pairs: Vec<(String, String)> = decode(query)?;
    let (mut object, mut faults) = (Map::new(), Vec::new());
    for (name, text) in pairs {
        let value = match schema["properties"][&name]["type"].as_str() {
            Some("integer") => text.parse::<i64>().map_or(Value::String(text), Value::from),
            Some("boolean") => text.parse::<bool>().map_or(Value::String(text), Value::from),
            _ => Value::String(text),
        };
        if object.insert(name.clone(), value).is_some() {
            faults.push(fault(&name, "repeated", format!("{name:?} may be given once")));
        }
    }
    Ok((Value::Object(object), faults))
}

fn decode(query: &str) -> Result<Vec<(String, String)>, Error> {
    let uri = format!("/?{query}").parse().map_err(|_| refused(Vec::new()))?;
    axum::extract::Query::try_from_uri(&uri)
        .map(|axum::extract::Query(pairs)| pairs)
        .map_err(|_| Error::malformed("invalid_parameter", "The query is not valid percent-encoded UTF-8."))
}
