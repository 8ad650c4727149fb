//! The catalogue: which properties a car has, as its maker writes them down.
//!
//! The format is that of the property files beside Android's reference vehicle; a maker brings the file that it has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use paddock_model::vehicles::{AreaId, AreaKind, PropertyId, PropertyType};
use serde_json::{Map, Value};

use crate::names;
use crate::proto::{
    HasSupportedValueInfo, VehicleAreaConfig, VehiclePropConfig, VehiclePropertyAccess,
    VehiclePropertyChangeMode,
};
use crate::values::{self, Key, Limits, Raw};

const STANDARD: &str = include_str!("properties.json");
/// Of the file format.
const NEWEST_VERSION: i64 = 2;
const MOST_PROPERTIES: usize = 4096;
const MOST_AREAS: usize = 64;

/// What is wrong with a property file, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueError(pub String);

impl std::fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CatalogueError {}

#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    entries: BTreeMap<PropertyId, Entry>,
    ids: HashMap<String, PropertyId>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub name: Option<String>,
    pub kind: PropertyType,
    pub config: VehiclePropConfig,
    /// What an area begins with; an area without one is unset until somebody sets it.
    pub defaults: BTreeMap<AreaId, Raw>,
}

impl Catalogue {
    /// The properties that most cars have.
    pub fn standard() -> Arc<Catalogue> {
        let empty = Catalogue {
            entries: BTreeMap::new(),
            ids: names::PROPERTIES.iter().map(|(name, id)| ((*name).to_owned(), PropertyId(*id))).collect(),
        };
        // A test reads the file, so an empty car is never seen.
        Arc::new(empty.laid_over(STANDARD).unwrap_or(empty))
    }

    /// The standard with a maker's file laid over it: what the file names is as the file says.
    pub fn with(text: &str) -> Result<Arc<Catalogue>, CatalogueError> {
        Catalogue::standard().laid_over(text).map(Arc::new)
    }

    fn laid_over(&self, text: &str) -> Result<Catalogue, CatalogueError> {
        let file: Value = serde_json::from_str(text)
            .map_err(|error| CatalogueError(format!("the property file is not JSON: {error}")))?;
        let wrong = |what: &str| Err(CatalogueError(format!("the property file {what}")));
        if let Some(version) = file.get("apiVersion")
            && !version.as_i64().is_some_and(|version| (1..=NEWEST_VERSION).contains(&version))
        {
            return wrong(&format!("has apiVersion {version}; write 1 or {NEWEST_VERSION}"));
        }
        let Some(Value::Array(properties)) = file.get("properties") else {
            return wrong("has no list `properties`; write {\"apiVersion\": 2, \"properties\": […]}");
        };
        if properties.len() > MOST_PROPERTIES {
            return wrong(&format!("has {} properties; the most are {MOST_PROPERTIES}", properties.len()));
        }
        let mut catalogue = self.clone();
        for (index, property) in properties.iter().enumerate() {
            let label = property.get("property").map_or_else(
                || format!("number {} of the list", index + 1),
                |name| name.as_str().map_or_else(|| name.to_string(), str::to_owned),
            );
            catalogue.take(property).map_err(|problem| {
                CatalogueError(format!("property {label} of the property file {problem}"))
            })?;
        }
        Ok(catalogue)
    }

    fn take(&mut self, property: &Value) -> Result<(), String> {
        let Value::Object(property) = property else { return Err("is not an object".to_owned()) };
        let id = property.get("property").ok_or("has no `property`; write its name or its number")?;
        let id = self.property_number(id)?;
        let kind =
            id.value_type().ok_or("has a number that tells no type; compare it with its definition")?;
        let area_kind = id
            .area_kind()
            .ok_or("has a number that tells no kind of area; compare it with its definition")?;
        let known = self.entries.get(&id);
        let name = match property.get("name") {
            Some(name) => Some(name.as_str().ok_or("has a `name` that is not a text")?.to_owned()),
            None => known.and_then(|known| known.name.clone()).or_else(|| {
                names::PROPERTIES.iter().find(|(_, each)| *each == id.0).map(|(name, _)| (*name).to_owned())
            }),
        };
        let access = match property.get("access") {
            Some(access) => access_of(access)?,
            None => match known {
                Some(known) => known.config.access(),
                None => return Err("has no `access`; write READ, WRITE or READ_WRITE".to_owned()),
            },
        };
        let change_mode = match property.get("changeMode") {
            Some(mode) => change_mode_of(mode)?,
            None => match known {
                Some(known) => known.config.change_mode(),
                None => return Err("has no `changeMode`; write STATIC, ON_CHANGE or CONTINUOUS".to_owned()),
            },
        };
        let config_array = self.numbers(property, "configArray")?;
        let rate = |field: &str| match property.get(field) {
            None => Ok(0.0),
            Some(rate) => rate
                .as_f64()
                .filter(|rate| *rate >= 0.0 && *rate <= 1e6)
                .map(|rate| rate as f32)
                .ok_or_else(|| format!("has a `{field}` that is not a number of times a second")),
        };
        let (min_sample_rate, max_sample_rate) = (rate("minSampleRate")?, rate("maxSampleRate")?);
        if change_mode == VehiclePropertyChangeMode::Continuous
            && (max_sample_rate <= 0.0 || min_sample_rate > max_sample_rate)
        {
            return Err("is CONTINUOUS and needs `minSampleRate` and `maxSampleRate`, the second not less than the first, \
                        such as 1 and 10"
                .to_owned());
        }
        let mut config = VehiclePropConfig {
            prop: id.0,
            access: access.into(),
            change_mode: change_mode.into(),
            area_configs: Vec::new(),
            config_array: config_array.iter().map(|number| narrow(*number)).collect::<Result<_, _>>()?,
            config_string: match property.get("configString") {
                None => Vec::new(),
                Some(text) => {
                    text.as_str().ok_or("has a `configString` that is not a text")?.as_bytes().to_vec()
                }
            },
            min_sample_rate,
            max_sample_rate,
        };
        let everywhere =
            property.get("defaultValue").map(|value| self.value(kind, &config.config_array, value));
        let everywhere =
            everywhere.transpose().map_err(|problem| format!("has a `defaultValue` that {problem}"))?;
        let mut defaults = BTreeMap::new();
        let areas = match property.get("areas") {
            None => &Vec::new(),
            Some(Value::Array(areas)) => areas,
            Some(_) => return Err("has `areas` that are not a list".to_owned()),
        };
        if areas.len() > MOST_AREAS {
            return Err(format!("has {} areas; the most are {MOST_AREAS}", areas.len()));
        }
        for area in areas {
            let Value::Object(area) = area else {
                return Err("has an area that is not an object".to_owned());
            };
            let number = match area.get("areaId") {
                Some(number) => narrow(self.number(number)?)?,
                None => return Err("has an area without `areaId`".to_owned()),
            };
            let mut told = self
                .area(area, number)
                .map_err(|problem| format!("has an area {number:#x} that {problem}"))?;
            if area_kind == AreaKind::Global && number != 0 {
                return Err(format!("is of the whole car and has an area {number:#x}; its area is 0"));
            }
            if config.area_configs.iter().any(|each| each.area_id == number) {
                return Err(format!("has the area {number:#x} twice"));
            }
            if !area.contains_key("access") {
                told.access = access.into();
            }
            if let Some(own) = area.get("defaultValue") {
                let own = self.value(kind, &config.config_array, own);
                let own =
                    own.map_err(|problem| format!("has an area {number:#x} whose `defaultValue` {problem}"))?;
                defaults.insert(AreaId(number), own);
            } else if let Some(value) = &everywhere {
                defaults.insert(AreaId(number), value.clone());
            }
            config.area_configs.push(told);
        }
        if config.area_configs.is_empty() {
            config.area_configs.push(VehicleAreaConfig {
                access: access.into(),
                support_variable_update_rate: change_mode == VehiclePropertyChangeMode::Continuous,
                ..VehicleAreaConfig::default()
            });
            defaults.extend(everywhere.map(|value| (AreaId(0), value)));
        }
        if let Some(name) = &name {
            if self.ids.get(name).is_some_and(|other| *other != id) {
                return Err(format!("is named {name}, as another property is; choose another `name`"));
            }
            self.ids.insert(name.clone(), id);
        }
        let entry = Entry { name, kind, config, defaults };
        for (area, value) in &entry.defaults {
            let limits = entry.limits(*area).unwrap_or_default();
            values::in_range(kind, &limits, value)
                .map_err(|problem| format!("has a `defaultValue` that does not fit: {problem}"))?;
        }
        self.entries.insert(id, entry);
        Ok(())
    }

    fn area(&self, area: &Map<String, Value>, number: i32) -> Result<VehicleAreaConfig, String> {
        let int = |field: &str| area.get(field).map_or(Ok(0), |value| self.number(value));
        let float = |field: &str| match area.get(field) {
            None => Ok(0.0),
            Some(value) => value
                .as_f64()
                .map(|wide| wide as f32)
                .ok_or_else(|| format!("has a `{field}` that is not a number")),
        };
        let flag = |object: &Map<String, Value>, field: &str| match object.get(field) {
            None => Ok(false),
            Some(value) => {
                value.as_bool().ok_or_else(|| format!("has a `{field}` that is not true or false"))
            }
        };
        let info = match area.get("hasSupportedValueInfo") {
            None => None,
            Some(Value::Object(info)) => Some(HasSupportedValueInfo {
                has_min_supported_value: flag(info, "hasMinSupportedValue")?,
                has_max_supported_value: flag(info, "hasMaxSupportedValue")?,
                has_supported_values_list: flag(info, "hasSupportedValuesList")?,
            }),
            Some(_) => return Err("has a `hasSupportedValueInfo` that is not an object".to_owned()),
        };
        Ok(VehicleAreaConfig {
            area_id: number,
            min_int32_value: narrow(int("minInt32Value")?)?,
            max_int32_value: narrow(int("maxInt32Value")?)?,
            min_int64_value: int("minInt64Value")?,
            max_int64_value: int("maxInt64Value")?,
            min_float_value: float("minFloatValue")?,
            max_float_value: float("maxFloatValue")?,
            supported_enum_values: self.numbers(area, "supportedEnumValues")?,
            access: area.get("access").map_or(Ok(VehiclePropertyAccess::None), access_of)?.into(),
            support_variable_update_rate: flag(area, "supportVariableUpdateRate")?,
            has_supported_value_info: info,
        })
    }

    fn numbers(&self, object: &Map<String, Value>, field: &str) -> Result<Vec<i64>, String> {
        match object.get(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(each)) => each.iter().map(|value| self.number(value)).collect(),
            Some(_) => Err(format!("has a `{field}` that is not a list")),
        }
    }

    /// `{"int32Values": […], …}`, in which constants may stand for numbers.
    fn value(&self, kind: PropertyType, config: &[i32], value: &Value) -> Result<Raw, String> {
        let mut value = value.clone();
        if let Value::Object(fields) = &mut value {
            for field in ["int32Values", "int64Values"] {
                if let Some(Value::Array(each)) = fields.get_mut(field) {
                    for number in each {
                        *number = self.number(number)?.into();
                    }
                }
            }
        }
        values::shaped(kind, config, values::mixed(&value)?)
    }

    /// A number, digits, or constants joined by `|`.
    fn number(&self, value: &Value) -> Result<i64, String> {
        match value {
            Value::Number(number) => {
                number.as_i64().ok_or_else(|| format!("has {number}, which is not a whole number"))
            }
            Value::String(text) => {
                text.split('|').try_fold(0, |all, part| Ok(all | self.constant(part.trim())?))
            }
            other => Err(format!("has {other} where a number or a constant's name is needed")),
        }
    }

    fn constant(&self, name: &str) -> Result<i64, String> {
        if let Some(number) = digits(name) {
            return Ok(number);
        }
        let (kind, name_alone) = name.rsplit_once("::").unwrap_or(("", name));
        let kind = kind.rsplit_once("::").map_or(kind, |(_, last)| last);
        if kind == "VehicleProperty"
            && let Some(id) = self.ids.get(name_alone)
        {
            return Ok(id.0.into());
        }
        let found = names::CONSTANTS.iter().find(|(known, _)| *known == kind);
        let found = found.and_then(|(_, members)| members.iter().find(|(member, _)| *member == name_alone));
        found
            .map(|(_, number)| *number)
            .ok_or_else(|| format!("has `{name}`, which is not known here; write its number"))
    }

    fn property_number(&self, value: &Value) -> Result<PropertyId, String> {
        match value {
            Value::Number(number) => {
                number.as_i64().and_then(id_of).ok_or_else(|| "has a number that does not fit into 32 bits".to_owned())
            }
            Value::String(text) => self.find(text).ok_or_else(|| {
                "is not known here by this name; write its number, such as \"0x21400001\", and its `name` beside it".to_owned()
            }),
            _ => Err("has a `property` that is neither a name nor a number".to_owned()),
        }
    }

    /// The number behind a name with or without its namespace, or behind digits with or without `0x`.
    pub fn find(&self, name: &str) -> Option<PropertyId> {
        if let Some(number) = digits(name) {
            return id_of(number).filter(|id| id.value_type().is_some() && id.area_kind().is_some());
        }
        self.ids.get(name.rsplit("::").next().unwrap_or(name)).copied()
    }

    pub fn name(&self, id: PropertyId) -> Option<&str> {
        self.entries.get(&id).and_then(|entry| entry.name.as_deref())
    }

    /// How a property is called where it may have no name.
    pub fn label(&self, id: PropertyId) -> String {
        self.name(id).map_or_else(|| format!("{:#010x}", id.0), str::to_owned)
    }

    pub fn entry(&self, id: PropertyId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub fn entries(&self) -> impl Iterator<Item = (PropertyId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// Every property in every area that it has.
    pub fn keys(&self) -> impl Iterator<Item = (Key, &Entry)> {
        self.entries().flat_map(|(id, entry)| {
            entry.config.area_configs.iter().map(move |area| ((id, AreaId(area.area_id)), entry))
        })
    }
}

impl Entry {
    pub fn area(&self, area: AreaId) -> Option<&VehicleAreaConfig> {
        self.config.area_configs.iter().find(|each| each.area_id == area.0)
    }

    /// What the maker says of an area's values; nothing when there is no such area.
    pub fn limits(&self, area: AreaId) -> Option<Limits> {
        let area = self.area(area)?;
        let int = |number| Raw { int32_values: vec![number], ..Raw::default() };
        let long = |number| Raw { int64_values: vec![number], ..Raw::default() };
        let float = |number| Raw { float_values: vec![number], ..Raw::default() };
        // Two zeros say that there is no range.
        let range = match self.kind {
            PropertyType::Int32 if (area.min_int32_value, area.max_int32_value) != (0, 0) => {
                Some((int(area.min_int32_value), int(area.max_int32_value)))
            }
            PropertyType::Int64 if (area.min_int64_value, area.max_int64_value) != (0, 0) => {
                Some((long(area.min_int64_value), long(area.max_int64_value)))
            }
            PropertyType::Float if (area.min_float_value, area.max_float_value) != (0.0, 0.0) => {
                Some((float(area.min_float_value), float(area.max_float_value)))
            }
            _ => None,
        };
        let supported = area.supported_enum_values.iter().map(|number| match self.kind {
            PropertyType::Int64 | PropertyType::Int64Vec => long(*number),
            PropertyType::Float | PropertyType::FloatVec => float(*number as f32),
            _ => int(i32::try_from(*number).unwrap_or_default()),
        });
        let (min, max) = range.unzip();
        Some(Limits { min, max, supported: supported.collect() })
    }
}

fn access_of(value: &Value) -> Result<VehiclePropertyAccess, String> {
    let told = value.as_str().map(|text| text.rsplit("::").next().unwrap_or(text));
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    told.and_then(VehiclePropertyAccess::from_str_name)
        .or_else(|| number.and_then(|number| VehiclePropertyAccess::try_from(number).ok()))
        .ok_or_else(|| format!("has access {value}; write NONE, READ, WRITE or READ_WRITE"))
}

fn change_mode_of(value: &Value) -> Result<VehiclePropertyChangeMode, String> {
    let told = value.as_str().map(|text| text.rsplit("::").next().unwrap_or(text));
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    told.and_then(VehiclePropertyChangeMode::from_str_name)
        .or_else(|| number.and_then(|number| VehiclePropertyChangeMode::try_from(number).ok()))
        .ok_or_else(|| format!("has changeMode {value}; write STATIC, ON_CHANGE or CONTINUOUS"))
}

fn digits(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Numbers with the highest bit set are written as positive ones too.
fn id_of(number: i64) -> Option<PropertyId> {
    i32::try_from(number).ok().or_else(|| u32::try_from(number).ok().map(u32::cast_signed)).map(PropertyId)
}

fn narrow(number: i64) -> Result<i32, String> {
    id_of(number).map(|id| id.0).ok_or_else(|| format!("has {number}, which does not fit into 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_has_every_property_that_has_a_name() {
        let standard = Catalogue::standard();
        assert_eq!(standard.entries().count(), names::PROPERTIES.len());
        assert_eq!(names::PROPERTIES.len(), 76);
        for (name, number) in names::PROPERTIES {
            let id = PropertyId(*number);
            assert_eq!(standard.find(name), Some(id));
            assert_eq!(standard.find(&format!("VehicleProperty::{name}")), Some(id));
            assert_eq!(standard.find(&number.to_string()), Some(id));
            assert_eq!(standard.find(&format!("{number:#x}")), Some(id));
            assert_eq!(standard.name(id), Some(*name));
        }
    }

    #[test]
    fn the_standard_begins_as_the_reference_does() {
        let standard = Catalogue::standard();
        let default = |name: &str, area: i32| {
            let entry = standard.entry(standard.find(name).expect("known")).expect("there");
            entry.defaults.get(&AreaId(area)).cloned()
        };
        let ints = |numbers: &[i32]| Some(Raw { int32_values: numbers.to_vec(), ..Raw::default() });
        let float = |number: f32| Some(Raw { float_values: vec![number], ..Raw::default() });
        assert_eq!(default("GEAR_SELECTION", 0), ints(&[4]));
        assert_eq!(default("IGNITION_STATE", 0), ints(&[4]));
        assert_eq!(default("HEADLIGHTS_SWITCH", 0), ints(&[0x100]));
        assert_eq!(
            default("INFO_EXTERIOR_DIMENSIONS", 0),
            ints(&[1776, 4950, 2008, 2140, 2984, 1665, 1667, 11800])
        );
        assert_eq!(default("INFO_DRIVER_SEAT", 0), ints(&[1]));
        assert_eq!(default("HVAC_TEMPERATURE_SET", 0x20), float(18.5));
        assert_eq!(default("TIRE_PRESSURE", 8), float(200.0));
        assert_eq!(default("HVAC_DUAL_ON", 0x75), ints(&[0]));
        assert_eq!(default("DOOR_POS", 0x2000_0000), ints(&[0]));
        for unset in ["TURN_SIGNAL_STATE", "AP_POWER_STATE_REQ", "DISPLAY_BRIGHTNESS", "VHAL_HEARTBEAT"] {
            assert_eq!(default(unset, 0), None);
        }
    }

    #[test]
    fn a_makers_file_replaces_what_it_names_and_adds_the_rest() {
        let text = r#"{"apiVersion": 1, "properties": [
            {"property": "VehicleProperty::GEAR_SELECTION", "comment": "two gears",
             "configArray": ["VehicleGear::GEAR_PARK", "VehicleGear::GEAR_DRIVE"],
             "defaultValue": {"int32Values": ["VehicleGear::GEAR_DRIVE"]}},
            {"property": "0x25400001", "name": "VENDOR_WARMTH",
             "access": "VehiclePropertyAccess::READ_WRITE", "changeMode": "VehiclePropertyChangeMode::ON_CHANGE",
             "configString": "warm", "defaultValue": {"int32Values": [2]},
             "areas": [
                {"areaId": "VehicleAreaSeat::ROW_1_LEFT | VehicleAreaSeat::ROW_2_LEFT", "minInt32Value": 1, "maxInt32Value": 3},
                {"areaId": "Constants::HVAC_RIGHT", "defaultValue": {"int32Values": [0]}, "access": "READ"}]},
            {"property": 559939591, "access": 1, "changeMode": 2, "minSampleRate": 0.5, "maxSampleRate": 2}
        ]}"#;
        let catalogue = Catalogue::with(text).expect("a good file");
        assert_eq!(catalogue.entries().count(), 78);
        let gear = catalogue.entry(catalogue.find("GEAR_SELECTION").expect("known")).expect("there");
        assert_eq!(gear.config.config_array, [4, 8]);
        assert_eq!(gear.config.access(), VehiclePropertyAccess::Read);
        assert_eq!(gear.defaults[&AreaId(0)].int32_values, [8]);
        let warmth = catalogue.entry(catalogue.find("VENDOR_WARMTH").expect("named")).expect("there");
        let areas: Vec<i32> = warmth.config.area_configs.iter().map(|area| area.area_id).collect();
        assert_eq!(areas, [0x11, 0x44]);
        assert_eq!(warmth.config.config_string, b"warm");
        assert_eq!(warmth.config.area_configs[0].access(), VehiclePropertyAccess::ReadWrite);
        assert_eq!(warmth.config.area_configs[1].access(), VehiclePropertyAccess::Read);
        assert_eq!(warmth.defaults[&AreaId(0x44)].int32_values, [0]);
        let rate = catalogue.entry(PropertyId(0x2160_0007)).expect("by its number");
        assert_eq!((rate.config.min_sample_rate, rate.config.max_sample_rate), (0.5, 2.0));
        assert_eq!(catalogue.label(PropertyId(0x2160_0007)), "0x21600007");
    }

    #[test]
    fn a_bad_file_says_where_it_is_bad_and_what_to_do() {
        let gear = |rest: &str| format!("{{\"properties\": [{{\"property\": \"GEAR_SELECTION\", {rest}}}]}}");
        for (text, reason) in [
            ("nonsense".to_owned(), "is not JSON"),
            ("{}".to_owned(), "no list `properties`"),
            ("{\"apiVersion\": 3, \"properties\": []}".to_owned(), "write 1 or 2"),
            ("{\"properties\": [{}]}".to_owned(), "number 1 of the list"),
            (
                "{\"properties\": [{\"property\": \"WINGS\"}]}".to_owned(),
                "property WINGS of the property file is not known",
            ),
            ("{\"properties\": [{\"property\": 7}]}".to_owned(), "property 7"),
            ("{\"properties\": [{\"property\": \"0x21400001\"}]}".to_owned(), "has no `access`; write READ"),
            (gear("\"access\": \"SOMETIMES\""), "property GEAR_SELECTION"),
            (gear("\"changeMode\": \"CONTINUOUS\""), "`minSampleRate` and `maxSampleRate`"),
            (
                gear("\"configArray\": [\"VehicleGear::GEAR_99\"]"),
                "`VehicleGear::GEAR_99`, which is not known here",
            ),
            (gear("\"defaultValue\": {\"floatValues\": [1.0]}"), "needs 1 int32 value"),
            (
                gear(
                    "\"defaultValue\": {\"int32Values\": [9]}, \"areas\": [{\"areaId\": 0, \"minInt32Value\": 1, \"maxInt32Value\": 3}]",
                ),
                "9 is not between 1 and 3",
            ),
            (gear("\"areas\": [{\"areaId\": 1}]"), "its area is 0"),
            (gear("\"areas\": [{\"areaId\": 0}, {\"areaId\": 0}]"), "area 0x0 twice"),
            (gear("\"areas\": [{}]"), "without `areaId`"),
            (gear("\"name\": \"NIGHT_MODE\""), "choose another `name`"),
        ] {
            let problem = Catalogue::with(&text).expect_err(reason).to_string();
            assert!(problem.contains(reason), "{problem}");
        }
    }
}
