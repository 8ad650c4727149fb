//! Labels: what users write on things to find them again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels(pub BTreeMap<String, String>);

// By hand: the derive knows neither the number of properties nor a rule for their names.
impl PartialSchema for Labels {
    fn schema() -> RefOr<Schema> {
        let text = |pattern: &str, length| -> Object {
            ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some(pattern))
                .max_length(Some(length))
                .build()
        };
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .description(Some(
                "What you write on a thing to find it again. A key is a lower-case letter, then letters, digits, \
                 `.`, `_`, `/` and `-`.",
            ))
            .property_names(Some(text("^[a-z][a-z0-9._/-]*$", 63)))
            .additional_properties(Some(RefOr::T(Schema::from(text("^[^\\x00-\\x1f\\x7f=!,]*$", 200)))))
            .max_properties(Some(50))
            .examples([serde_json::json!({"team": "maps"})])
            .into()
    }
}

impl ToSchema for Labels {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Labels")
    }
}
