//! Checks what comes in against the very schema that the contract publishes, and names every fault at once.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use paddock_model::error::Fault;
use paddock_model::slug::Slug;
use paddock_model::{Error, Result};
use serde_json::{Value, json};

/// The validators, each compiled when it is first needed.
pub struct Schemas {
    components: Value,
    compiled: RwLock<HashMap<TypeId, Arc<Validator>>>,
}

impl Schemas {
    /// `components` is that part of the OpenAPI document.
    pub fn new(components: Value) -> Self {
        Schemas { components, compiled: RwLock::new(HashMap::new()) }
    }

    /// The faults of a value that is to be read as `T`; `schema` describes it.
    pub fn faults<T: 'static>(&self, value: &Value, schema: impl FnOnce() -> Value) -> Result<Vec<Fault>> {
        let validator = self.validator::<T>(schema)?;
        if validator.is_valid(value) {
            return Ok(Vec::new());
        }
        Ok(validator.iter_errors(value).flat_map(|error| describe(&error)).take(MOST).collect())
    }

    fn validator<T: 'static>(&self, schema: impl FnOnce() -> Value) -> Result<Arc<Validator>> {
        let key = TypeId::of::<T>();
        if let Some(known) = self.compiled.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.clone());
        }
        let mut schema = schema();
        schema["components"] = self.components.clone();
        let compiled = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .build(&schema)
            .map_err(|error| Error::internal(error.to_string()).context("compile a schema"))?;
        let compiled = Arc::new(compiled);
        self.compiled.write().unwrap_or_else(PoisonError::into_inner).insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// The schema of a component.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Enough to mend a request by; a body could hold a hundred thousand.
const MOST: usize = 100;
/// Of a name that was sent, no more than this is sent back.
const SHOWN: usize = 100;

pub const UNKNOWN_MEMBER: &str = "unknown_member";

fn describe(error: &ValidationError<'_>) -> Vec<Fault> {
    let place = error.instance_path().to_string();
    let place: String = place.chars().take(10 * SHOWN).collect();
    let shown =
        |name: &str| name.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect::<String>();
    let below = |name: &str| format!("{place}/{}", shown(name).replace('~', "~0").replace('/', "~1"));
    let fault = |pointer, code, message: String| {
        vec![Fault { pointer, code: std::borrow::Cow::Borrowed(code), message }]
    };
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => unexpected
            .iter()
            .map(|name| Fault {
                pointer: below(name),
                code: UNKNOWN_MEMBER.into(),
                message: format!("{:?} is not known here", shown(name)),
            })
            .collect(),
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            fault(below(name), "required", format!("{name:?} is missing"))
        }
        // What was sent is not repeated: it may be long, and it may be a secret.
        ValidationErrorKind::PropertyNames { .. } => {
            let message = "one of its names is not allowed: a name is a lower-case letter, then letters, digits, . _ / -";
            fault(place.clone(), "wrong_pattern", message.to_owned())
        }
        ValidationErrorKind::Pattern { pattern } if pattern == Slug::PATTERN => {
            let message =
                "it is not made of lower-case letters, digits and inner hyphens, at most 63".to_owned();
            fault(place.clone(), "wrong_pattern", message)
        }
        kind => fault(place.clone(), code(kind), error.masked_with("it").to_string()),
    }
}

const fn code(kind: &ValidationErrorKind) -> &'static str {
    match kind {
        ValidationErrorKind::Type { .. } => "wrong_type",
        ValidationErrorKind::Pattern { .. } => "wrong_pattern",
        ValidationErrorKind::Format { .. } => "wrong_format",
        ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => "not_allowed",
        ValidationErrorKind::MaxLength { .. } => "too_long",
        ValidationErrorKind::MinLength { .. } => "too_short",
        ValidationErrorKind::Maximum { .. } | ValidationErrorKind::ExclusiveMaximum { .. } => "too_large",
        ValidationErrorKind::Minimum { .. } | ValidationErrorKind::ExclusiveMinimum { .. } => "too_small",
        ValidationErrorKind::MaxItems { .. } | ValidationErrorKind::MaxProperties { .. } => "too_many",
        ValidationErrorKind::MinItems { .. } | ValidationErrorKind::MinProperties { .. } => "too_few",
        _ => "invalid",
    }
}
