//! Values of a vehicle's properties, which may be of many kinds.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A property's value, as people write it: true or false, a number, a text (bytes in base64), a list of numbers, or several lists where
/// a maker's property mixes kinds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VehicleValue(pub Value);

impl ToSchema for VehicleValue {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("VehicleValue")
    }
}

impl PartialSchema for VehicleValue {
    fn schema() -> RefOr<Schema> {
        const MOST: i64 = 9_007_199_254_740_991;
        let number = || {
            let number = ObjectBuilder::new().schema_type(Type::Number);
            number.minimum(Some(-MOST)).maximum(Some(MOST))
        };
        let text = || {
            let text = ObjectBuilder::new().schema_type(Type::String);
            text.max_length(Some(65_536)).pattern(Some("^[^\\x00]*$"))
        };
        let list = || ArrayBuilder::new().items(number()).max_items(Some(1024));
        let mixed = ObjectBuilder::new()
            .property("int32Values", list())
            .property("int64Values", list())
            .property("floatValues", list())
            .property("stringValue", text())
            .property("byteValues", text());
        OneOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::Boolean))
            .item(number())
            .item(text())
            .item(list())
            .item(mixed)
            .description(Some("As people write it: true or false, a number, a text (bytes in base64), a list of numbers, or several lists where a maker's property mixes kinds."))
            .into()
    }
}
