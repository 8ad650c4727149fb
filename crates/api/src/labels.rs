//! Labels: what users write on things to find them again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Labels(pub BTreeMap<String, String>);

// By hand: a key that stands twice is a mistake, and not for the last one to win.
impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if labels.insert(key, value).is_some() {
                        return Err(serde::de::Error::custom("a label stands twice"));
                    }
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

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
