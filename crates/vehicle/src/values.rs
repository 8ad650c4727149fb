//! Values: what a property may hold, and how people write it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use paddock_model::vehicles::{AreaId, PropertyId, PropertyStatus, PropertyType};
use serde_json::{Map, Number, Value, json};

use crate::proto;

/// A value without anything around it.
pub type Raw = proto::RawPropValues;

/// A property in one of its areas.
pub type Key = (PropertyId, AreaId);

/// The bounds of a value; a bound of `None` is no bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    pub min: Option<Raw>,
    pub max: Option<Raw>,
    pub supported: Vec<Raw>,
}

pub fn raw(value: proto::VehiclePropValue) -> Raw {
    Raw {
        int32_values: value.int32_values,
        float_values: value.float_values,
        int64_values: value.int64_values,
        byte_values: value.byte_values,
        string_value: value.string_value,
    }
}

pub fn on_the_wire(key: Key, raw: Raw, status: PropertyStatus, timestamp: i64) -> proto::VehiclePropValue {
    proto::VehiclePropValue {
        timestamp,
        area_id: key.1.0,
        prop: key.0.0,
        status: wire_status(status).into(),
        int32_values: raw.int32_values,
        float_values: raw.float_values,
        int64_values: raw.int64_values,
        byte_values: raw.byte_values,
        string_value: raw.string_value,
    }
}

pub fn wire_status(status: PropertyStatus) -> proto::VehiclePropertyStatus {
    match status {
        PropertyStatus::Available => proto::VehiclePropertyStatus::Available,
        PropertyStatus::Unavailable => proto::VehiclePropertyStatus::Unavailable,
        PropertyStatus::Error => proto::VehiclePropertyStatus::Error,
    }
}

/// A number that nobody knows is an error, as far as we can say.
pub fn status(number: i32) -> PropertyStatus {
    match proto::VehiclePropertyStatus::try_from(number) {
        Ok(proto::VehiclePropertyStatus::Available) => PropertyStatus::Available,
        Ok(proto::VehiclePropertyStatus::Unavailable) => PropertyStatus::Unavailable,
        Ok(proto::VehiclePropertyStatus::Error) | Err(_) => PropertyStatus::Error,
    }
}

/// Takes what a type is made of and leaves the rest, or says what is missing. `config` tells what a mixed property holds.
pub fn shaped(kind: PropertyType, config: &[i32], raw: Raw) -> Result<Raw, String> {
    let exactly = |what: &str, wanted: usize, got: usize| {
        if wanted == got { Ok(()) } else { Err(format!("needs {wanted} {what}, not {got}")) }
    };
    let some = |what: &str, got: usize| {
        if got > 0 { Ok(()) } else { Err(format!("needs at least one {what}")) }
    };
    Ok(match kind {
        PropertyType::Boolean | PropertyType::Int32 => {
            exactly("int32 value", 1, raw.int32_values.len())?;
            Raw { int32_values: raw.int32_values, ..Raw::default() }
        }
        PropertyType::Int32Vec => {
            some("int32 value", raw.int32_values.len())?;
            Raw { int32_values: raw.int32_values, ..Raw::default() }
        }
        PropertyType::Int64 => {
            exactly("int64 value", 1, raw.int64_values.len())?;
            Raw { int64_values: raw.int64_values, ..Raw::default() }
        }
        PropertyType::Int64Vec => {
            some("int64 value", raw.int64_values.len())?;
            Raw { int64_values: raw.int64_values, ..Raw::default() }
        }
        PropertyType::Float => {
            exactly("float value", 1, raw.float_values.len())?;
            Raw { float_values: raw.float_values, ..Raw::default() }
        }
        PropertyType::FloatVec => {
            some("float value", raw.float_values.len())?;
            Raw { float_values: raw.float_values, ..Raw::default() }
        }
        PropertyType::String => Raw { string_value: raw.string_value, ..Raw::default() },
        PropertyType::Bytes => Raw { byte_values: raw.byte_values, ..Raw::default() },
        PropertyType::Mixed => {
            // Text, boolean, int32, int32s, int64, int64s, float, floats, bytes: whether there is one, or how many there are.
            if let [_, boolean, int, ints, long, longs, float, floats, bytes, ..] = *config {
                let count = |parts: &[i32]| parts.iter().map(|part| (*part).max(0) as usize).sum::<usize>();
                exactly("int32 values", count(&[boolean.min(1), int.min(1), ints]), raw.int32_values.len())?;
                exactly("int64 values", count(&[long.min(1), longs]), raw.int64_values.len())?;
                exactly("float values", count(&[float.min(1), floats]), raw.float_values.len())?;
                exactly("bytes", count(&[bytes]), raw.byte_values.len())?;
            }
            raw
        }
    })
}

/// Only single numbers have a range.
pub fn in_range(kind: PropertyType, limits: &Limits, raw: &Raw) -> Result<(), String> {
    fn between<T: PartialOrd + Copy + std::fmt::Display>(
        value: Option<&T>,
        min: Option<T>,
        max: Option<T>,
    ) -> Result<(), String> {
        let Some(value) = value else { return Ok(()) };
        // Written so that what is not a number is outside.
        if min.is_none_or(|min| *value >= min) && max.is_none_or(|max| *value <= max) {
            return Ok(());
        }
        Err(match (min, max) {
            (Some(min), Some(max)) => format!("{value} is not between {min} and {max}"),
            (Some(min), None) => format!("{value} is less than {min}"),
            (_, max) => {
                format!("{value} is more than {}", max.map(|max| max.to_string()).unwrap_or_default())
            }
        })
    }
    let (min, max) = (limits.min.as_ref(), limits.max.as_ref());
    match kind {
        PropertyType::Int32 => {
            let bound = |side: Option<&Raw>| side.and_then(|side| side.int32_values.first().copied());
            between(raw.int32_values.first(), bound(min), bound(max))
        }
        PropertyType::Int64 => {
            let bound = |side: Option<&Raw>| side.and_then(|side| side.int64_values.first().copied());
            between(raw.int64_values.first(), bound(min), bound(max))
        }
        PropertyType::Float => {
            let bound = |side: Option<&Raw>| side.and_then(|side| side.float_values.first().copied());
            between(raw.float_values.first(), bound(min), bound(max))
        }
        _ => Ok(()),
    }
}

/// To the nearest multiple of the resolution; 0 leaves everything as it is.
pub fn rounded(raw: &Raw, resolution: f32) -> Raw {
    let mut raw = raw.clone();
    if resolution > 0.0 && resolution.is_finite() {
        let step = f64::from(resolution);
        let round = |value: f64| (value / step).round() * step;
        raw.int32_values.iter_mut().for_each(|value| *value = round(f64::from(*value)) as i32);
        raw.int64_values.iter_mut().for_each(|value| *value = round(*value as f64) as i64);
        raw.float_values.iter_mut().for_each(|value| *value = round(f64::from(*value)) as f32);
    }
    raw
}

/// As people write it; [`from_json`] is the reverse.
pub fn to_json(kind: PropertyType, raw: &Raw) -> Value {
    match kind {
        PropertyType::Boolean => match raw.int32_values.first() {
            Some(0) => Value::Bool(false),
            Some(1) => Value::Bool(true),
            other => json!(other),
        },
        PropertyType::Int32 => json!(raw.int32_values.first()),
        PropertyType::Int32Vec => json!(raw.int32_values),
        PropertyType::Int64 => json!(raw.int64_values.first()),
        PropertyType::Int64Vec => json!(raw.int64_values),
        PropertyType::Float => raw.float_values.first().map_or(Value::Null, |float| float_to_json(*float)),
        PropertyType::FloatVec => raw.float_values.iter().map(|float| float_to_json(*float)).collect(),
        PropertyType::String => json!(raw.string_value),
        PropertyType::Bytes => json!(BASE64.encode(&raw.byte_values)),
        PropertyType::Mixed => {
            let mut object = Map::new();
            if !raw.int32_values.is_empty() {
                object.insert("int32Values".into(), json!(raw.int32_values));
            }
            if !raw.int64_values.is_empty() {
                object.insert("int64Values".into(), json!(raw.int64_values));
            }
            if !raw.float_values.is_empty() {
                let floats = raw.float_values.iter().map(|float| float_to_json(*float)).collect();
                object.insert("floatValues".into(), floats);
            }
            if !raw.byte_values.is_empty() {
                object.insert("byteValues".into(), json!(BASE64.encode(&raw.byte_values)));
            }
            if !raw.string_value.is_empty() {
                object.insert("stringValue".into(), json!(raw.string_value));
            }
            Value::Object(object)
        }
    }
}

pub fn from_json(kind: PropertyType, value: &Value) -> Result<Raw, String> {
    let many = |value: &Value, what: &str| match value {
        Value::Array(each) if !each.is_empty() => Ok(each.clone()),
        Value::Array(_) => Err(format!("is an empty list; write at least one {what}")),
        _ => Err(format!("is not a list; write [{what}, …]")),
    };
    Ok(match kind {
        PropertyType::Boolean => {
            let int = match value {
                Value::Bool(bool) => i32::from(*bool),
                other => int32(other).map_err(|_| "is not true or false".to_owned())?,
            };
            Raw { int32_values: vec![int], ..Raw::default() }
        }
        PropertyType::Int32 => Raw { int32_values: vec![int32(value)?], ..Raw::default() },
        PropertyType::Int32Vec => {
            let values = many(value, "whole number")?.iter().map(int32).collect::<Result<_, _>>()?;
            Raw { int32_values: values, ..Raw::default() }
        }
        PropertyType::Int64 => Raw { int64_values: vec![int64(value)?], ..Raw::default() },
        PropertyType::Int64Vec => {
            let values = many(value, "whole number")?.iter().map(int64).collect::<Result<_, _>>()?;
            Raw { int64_values: values, ..Raw::default() }
        }
        PropertyType::Float => Raw { float_values: vec![float(value)?], ..Raw::default() },
        PropertyType::FloatVec => {
            let values = many(value, "number")?.iter().map(float).collect::<Result<_, _>>()?;
            Raw { float_values: values, ..Raw::default() }
        }
        PropertyType::String => Raw { string_value: text(value)?, ..Raw::default() },
        PropertyType::Bytes => Raw { byte_values: bytes(value)?, ..Raw::default() },
        PropertyType::Mixed => mixed(value)?,
    })
}

/// `{"int32Values": […], …}`, whatever the type.
pub fn mixed(value: &Value) -> Result<Raw, String> {
    let Value::Object(object) = value else {
        return Err("is not an object; write {\"int32Values\": […], …}".to_owned());
    };
    let list = |value: &Value| {
        value.as_array().cloned().ok_or_else(|| "holds something that is not a list".to_owned())
    };
    let mut raw = Raw::default();
    for (field, value) in object {
        match field.as_str() {
            "int32Values" => raw.int32_values = list(value)?.iter().map(int32).collect::<Result<_, _>>()?,
            "int64Values" => raw.int64_values = list(value)?.iter().map(int64).collect::<Result<_, _>>()?,
            "floatValues" => raw.float_values = list(value)?.iter().map(float).collect::<Result<_, _>>()?,
            "byteValues" => raw.byte_values = bytes(value)?,
            "stringValue" => raw.string_value = text(value)?,
            other => {
                return Err(format!(
                    "has `{other}`; known are int32Values, int64Values, floatValues, byteValues and stringValue"
                ));
            }
        }
    }
    Ok(raw)
}

/// The shortest digits that read as the same float.
fn float_to_json(float: f32) -> Value {
    if float.is_nan() {
        return json!("NaN");
    }
    if float.is_infinite() {
        return json!(if float > 0.0 { "Infinity" } else { "-Infinity" });
    }
    float.to_string().parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

fn float(value: &Value) -> Result<f32, String> {
    let parsed = match value {
        Value::Number(number) => number.as_f64().map(|wide| wide as f32).filter(|float| float.is_finite()),
        Value::String(text) if text == "Infinity" => Some(f32::INFINITY),
        Value::String(text) if text == "-Infinity" => Some(f32::NEG_INFINITY),
        Value::String(text) if text == "NaN" => Some(f32::NAN),
        _ => None,
    };
    parsed.ok_or_else(|| format!("is {value}, which is not a number of 32 bits"))
}

fn int32(value: &Value) -> Result<i32, String> {
    int64(value).ok().and_then(|wide| i32::try_from(wide).ok()).ok_or_else(|| {
        format!("is {value}, which is not a whole number between {} and {}", i32::MIN, i32::MAX)
    })
}

/// Texts of digits are numbers too: not every reader of JSON keeps 64 bits.
fn int64(value: &Value) -> Result<i64, String> {
    let parsed = match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            // 3.0 is how some write 3.
            number.as_f64().filter(|wide| wide.fract() == 0.0 && wide.abs() < 9e15).map(|wide| wide as i64)
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    parsed.ok_or_else(|| format!("is {value}, which is not a whole number of 64 bits"))
}

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("is {value}, which is not a text"))
}

fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    let text = value.as_str().ok_or_else(|| "is not a text of base64".to_owned())?;
    BASE64.decode(text).map_err(|_| "is not base64".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const KINDS: [PropertyType; 10] = [
        PropertyType::String,
        PropertyType::Boolean,
        PropertyType::Int32,
        PropertyType::Int32Vec,
        PropertyType::Int64,
        PropertyType::Int64Vec,
        PropertyType::Float,
        PropertyType::FloatVec,
        PropertyType::Bytes,
        PropertyType::Mixed,
    ];

    fn anything() -> impl Strategy<Value = Raw> {
        let floats = vec(any::<f32>().prop_filter("equal to itself", |float| !float.is_nan()), 0..4);
        (vec(any::<i32>(), 0..4), floats, vec(any::<i64>(), 0..4), vec(any::<u8>(), 0..20), ".{0,12}")
            .prop_map(|(int32_values, float_values, int64_values, byte_values, string_value)| Raw {
                int32_values,
                float_values,
                int64_values,
                byte_values,
                string_value,
            })
    }

    proptest! {
        #[test]
        fn whatever_a_property_holds_is_read_as_it_was_written(kind in 0..KINDS.len(), raw in anything()) {
            let kind = KINDS[kind];
            if let Ok(raw) = shaped(kind, &[], raw) {
                let text = to_json(kind, &raw).to_string();
                let back = from_json(kind, &serde_json::from_str(&text).expect("JSON"));
                prop_assert_eq!(back, Ok(raw), "{}", text);
            }
        }

        #[test]
        fn what_people_write_fits_or_is_refused(kind in 0..KINDS.len(), text in "[0-9a-z\\[\\]{}\",.:-]{0,12}") {
            let kind = KINDS[kind];
            if let Ok(value) = serde_json::from_str(&text)
                && let Ok(raw) = from_json(kind, &value)
            {
                prop_assert_eq!(shaped(kind, &[], raw.clone()), Ok(raw));
            }
        }

        #[test]
        fn rounding_twice_is_rounding_once(number in -1e6_f32..1e6, resolution in prop::sample::select(vec![0.0, 0.1, 0.5, 1.0, 5.0])) {
            let raw = Raw { float_values: vec![number], ..Raw::default() };
            let once = rounded(&raw, resolution);
            prop_assert_eq!(rounded(&once, resolution), once.clone());
            prop_assert!((once.float_values[0] - number).abs() <= resolution / 2.0 + 0.1);
        }
    }

    #[test]
    fn people_write_values_as_they_are_used_to() {
        for (kind, written, raw) in [
            (PropertyType::Boolean, json!(true), Raw { int32_values: vec![1], ..Raw::default() }),
            (PropertyType::Boolean, json!(0), Raw { int32_values: vec![0], ..Raw::default() }),
            (PropertyType::Int32, json!(3.0), Raw { int32_values: vec![3], ..Raw::default() }),
            (PropertyType::Int32, json!("-3"), Raw { int32_values: vec![-3], ..Raw::default() }),
            (PropertyType::Float, json!(3), Raw { float_values: vec![3.0], ..Raw::default() }),
            (
                PropertyType::Float,
                json!("-Infinity"),
                Raw { float_values: vec![f32::NEG_INFINITY], ..Raw::default() },
            ),
            (
                PropertyType::Int64,
                json!("9223372036854775807"),
                Raw { int64_values: vec![i64::MAX], ..Raw::default() },
            ),
            (PropertyType::Bytes, json!("AQI="), Raw { byte_values: vec![1, 2], ..Raw::default() }),
        ] {
            assert_eq!(from_json(kind, &written), Ok(raw), "{written}");
        }
        for (kind, written) in [
            (PropertyType::Boolean, json!("true")),
            (PropertyType::Int32, json!(3.5)),
            (PropertyType::Int32, json!(2_147_483_648_i64)),
            (PropertyType::Int32Vec, json!([])),
            (PropertyType::Int32Vec, json!(1)),
            (PropertyType::Float, json!(1e39)),
            (PropertyType::Float, json!("fast")),
            (PropertyType::String, json!(1)),
            (PropertyType::Bytes, json!("!")),
            (PropertyType::Mixed, json!({"uint8Values": []})),
        ] {
            assert!(from_json(kind, &written).is_err(), "{written}");
        }
        assert_eq!(
            to_json(PropertyType::Float, &Raw { float_values: vec![18.1], ..Raw::default() }).to_string(),
            "18.1"
        );
    }
}
