//! What Android calls the car's properties, and how their values are written as text.

use std::fmt::Write;

use super::wire::PropValue;

pub const INFO_FUEL_CAPACITY: i32 = 0x1160_0104;
pub const INFO_FUEL_TYPE: i32 = 0x1141_0105;
pub const INFO_EV_BATTERY_CAPACITY: i32 = 0x1160_0106;
pub const PERF_ODOMETER: i32 = 0x1160_0204;
pub const PERF_VEHICLE_SPEED: i32 = 0x1160_0207;
pub const FUEL_LEVEL: i32 = 0x1160_0307;
pub const EV_BATTERY_LEVEL: i32 = 0x1160_0309;
pub const RANGE_REMAINING: i32 = 0x1160_0308;
pub const GEAR_SELECTION: i32 = 0x1140_0400;
pub const CURRENT_GEAR: i32 = 0x1140_0401;
pub const PARKING_BRAKE_ON: i32 = 0x1120_0402;
pub const FUEL_LEVEL_LOW: i32 = 0x1120_0405;
pub const TURN_SIGNAL_STATE: i32 = 0x1140_0408;
pub const HVAC_TEMPERATURE_DISPLAY_UNITS: i32 = 0x1140_050e;
pub const DISTANCE_DISPLAY_UNITS: i32 = 0x1140_0600;
pub const VEHICLE_SPEED_DISPLAY_UNITS: i32 = 0x1140_0605;
pub const ENV_OUTSIDE_TEMPERATURE: i32 = 0x1160_0703;
pub const DOOR_POS: i32 = 0x1640_0b00;
pub const HEADLIGHTS_STATE: i32 = 0x1140_0e00;
pub const HAZARD_LIGHTS_STATE: i32 = 0x1140_0e03;

/// Those that a car usually has; whatever is not here goes by its number.
const NAMES: [(i32, &str); 76] = [
    (0x1110_0100, "INFO_VIN"),
    (0x1110_0101, "INFO_MAKE"),
    (0x1110_0102, "INFO_MODEL"),
    (0x1140_0103, "INFO_MODEL_YEAR"),
    (0x1160_0104, "INFO_FUEL_CAPACITY"),
    (0x1141_0105, "INFO_FUEL_TYPE"),
    (0x1160_0106, "INFO_EV_BATTERY_CAPACITY"),
    (0x1141_0107, "INFO_EV_CONNECTOR_TYPE"),
    (0x1540_010a, "INFO_DRIVER_SEAT"),
    (0x1141_010b, "INFO_EXTERIOR_DIMENSIONS"),
    (0x1160_0204, "PERF_ODOMETER"),
    (0x1160_0207, "PERF_VEHICLE_SPEED"),
    (0x1160_0208, "PERF_VEHICLE_SPEED_DISPLAY"),
    (0x1160_0209, "PERF_STEERING_ANGLE"),
    (0x1160_0301, "ENGINE_COOLANT_TEMP"),
    (0x1140_0303, "ENGINE_OIL_LEVEL"),
    (0x1160_0304, "ENGINE_OIL_TEMP"),
    (0x1160_0305, "ENGINE_RPM"),
    (0x1151_0306, "WHEEL_TICK"),
    (0x1160_0307, "FUEL_LEVEL"),
    (0x1120_0308, "FUEL_DOOR_OPEN"),
    (0x1160_0309, "EV_BATTERY_LEVEL"),
    (0x1120_030a, "EV_CHARGE_PORT_OPEN"),
    (0x1120_030b, "EV_CHARGE_PORT_CONNECTED"),
    (0x1160_030c, "EV_BATTERY_INSTANTANEOUS_CHARGE_RATE"),
    (0x1160_0308, "RANGE_REMAINING"),
    (0x1760_0309, "TIRE_PRESSURE"),
    (0x1140_0400, "GEAR_SELECTION"),
    (0x1140_0401, "CURRENT_GEAR"),
    (0x1120_0402, "PARKING_BRAKE_ON"),
    (0x1120_0403, "PARKING_BRAKE_AUTO_APPLY"),
    (0x1120_0405, "FUEL_LEVEL_LOW"),
    (0x1120_0407, "NIGHT_MODE"),
    (0x1140_0408, "TURN_SIGNAL_STATE"),
    (0x1140_0409, "IGNITION_STATE"),
    (0x1120_040a, "ABS_ACTIVE"),
    (0x1120_040b, "TRACTION_CONTROL_ACTIVE"),
    (0x1540_0500, "HVAC_FAN_SPEED"),
    (0x1540_0501, "HVAC_FAN_DIRECTION"),
    (0x1560_0502, "HVAC_TEMPERATURE_CURRENT"),
    (0x1560_0503, "HVAC_TEMPERATURE_SET"),
    (0x1320_0504, "HVAC_DEFROSTER"),
    (0x1520_0505, "HVAC_AC_ON"),
    (0x1520_0508, "HVAC_RECIRC_ON"),
    (0x1520_0509, "HVAC_DUAL_ON"),
    (0x1520_050a, "HVAC_AUTO_ON"),
    (0x1520_0510, "HVAC_POWER_ON"),
    (0x1540_050b, "HVAC_SEAT_TEMPERATURE"),
    (0x1140_050e, "HVAC_TEMPERATURE_DISPLAY_UNITS"),
    (0x1140_0600, "DISTANCE_DISPLAY_UNITS"),
    (0x1140_0605, "VEHICLE_SPEED_DISPLAY_UNITS"),
    (0x1160_0703, "ENV_OUTSIDE_TEMPERATURE"),
    (0x1141_0a00, "AP_POWER_STATE_REQ"),
    (0x1141_0a01, "AP_POWER_STATE_REPORT"),
    (0x1140_0a03, "DISPLAY_BRIGHTNESS"),
    (0x1141_0a10, "HW_KEY_INPUT"),
    (0x1640_0b00, "DOOR_POS"),
    (0x1620_0b02, "DOOR_LOCK"),
    (0x1120_0b45, "MIRROR_FOLD"),
    (0x1520_0b82, "SEAT_BELT_BUCKLED"),
    (0x1540_0bb0, "SEAT_OCCUPANCY"),
    (0x1340_0bc0, "WINDOW_POS"),
    (0x1320_0bc4, "WINDOW_LOCK"),
    (0x1140_0e00, "HEADLIGHTS_STATE"),
    (0x1140_0e10, "HEADLIGHTS_SWITCH"),
    (0x1140_0e03, "HAZARD_LIGHTS_STATE"),
    (0x1140_0e13, "HAZARD_LIGHTS_SWITCH"),
    (0x1140_0f02, "CABIN_LIGHTS_SWITCH"),
    (0x1140_0f41, "EV_CHARGE_STATE"),
    (0x1120_0f42, "EV_CHARGE_SWITCH"),
    (0x1160_0f40, "EV_CHARGE_PERCENT_LIMIT"),
    (0x1140_0f43, "EV_CHARGE_TIME_REMAINING"),
    (0x1150_0f33, "VHAL_HEARTBEAT"),
    (0x1120_100f, "CRUISE_CONTROL_ENABLED"),
    (0x1160_1013, "CRUISE_CONTROL_TARGET_SPEED"),
    (0x1120_1000, "AUTOMATIC_EMERGENCY_BRAKING_ENABLED"),
];

pub fn name_of(prop: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == prop);
    known.map_or_else(|| format!("0x{prop:08x}"), |(_, name)| (*name).to_owned())
}

/// The number behind a name, or behind digits with or without `0x`.
pub fn find(name: &str) -> Option<i32> {
    let upper = name.to_ascii_uppercase();
    let known = NAMES.iter().find(|(_, name)| *name == upper).map(|(number, _)| *number);
    known.or_else(|| number(name))
}

/// As written by people: decimal, or hexadecimal with `0x`.
pub fn number(text: &str) -> Option<i32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(u32::cast_signed),
        None => text.parse().ok(),
    }
}

/// The device's own property that shows a value.
pub fn shown_as(prop: i32, area: i32) -> String {
    let name = name_of(prop).to_ascii_lowercase();
    if area == 0 { format!("vehicle.{name}") } else { format!("vehicle.{name}.{area:x}") }
}

/// What a property's values are made of; its number says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Boolean,
    Int32,
    Int32s,
    Int64,
    Int64s,
    Float,
    Floats,
    Bytes,
    Mixed,
}

impl Kind {
    pub fn of(prop: i32) -> Kind {
        match prop & 0x00ff_0000 {
            0x0010_0000 => Kind::Text,
            0x0020_0000 => Kind::Boolean,
            0x0040_0000 => Kind::Int32,
            0x0041_0000 => Kind::Int32s,
            0x0050_0000 => Kind::Int64,
            0x0051_0000 => Kind::Int64s,
            0x0060_0000 => Kind::Float,
            0x0061_0000 => Kind::Floats,
            0x0070_0000 => Kind::Bytes,
            _ => Kind::Mixed,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Boolean => "boolean",
            Kind::Int32 => "int32",
            Kind::Int32s => "int32_vec",
            Kind::Int64 => "int64",
            Kind::Int64s => "int64_vec",
            Kind::Float => "float",
            Kind::Floats => "float_vec",
            Kind::Bytes => "bytes",
            Kind::Mixed => "mixed",
        }
    }
}

/// One line of text for a value.
pub fn text_of(value: &PropValue) -> String {
    match value.status {
        0 => {}
        1 => return "unavailable".to_owned(),
        _ => return "error".to_owned(),
    }
    match Kind::of(value.prop) {
        Kind::Text => one_line(&value.string_value),
        Kind::Boolean => value.int32_values.first().map_or(String::new(), |value| (*value != 0).to_string()),
        Kind::Int32 | Kind::Int32s => listed(&value.int32_values),
        Kind::Int64 | Kind::Int64s => listed(&value.int64_values),
        Kind::Float | Kind::Floats => listed(&value.float_values),
        Kind::Bytes => hex(&value.byte_values),
        Kind::Mixed => {
            let parts = [
                listed(&value.int32_values),
                listed(&value.int64_values),
                listed(&value.float_values),
                hex(&value.byte_values),
                one_line(&value.string_value),
            ];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(";")
        }
    }
}

fn listed<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A car may say anything; a property is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The value that a text stands for, or what is wrong with it.
pub fn value_of(prop: i32, area: i32, text: &str) -> Result<PropValue, String> {
    let kind = Kind::of(prop);
    let wrong = || format!("'{text}' is no {}", kind.name());
    let mut value = PropValue { prop, area_id: area, ..PropValue::default() };
    match kind {
        Kind::Text => text.clone_into(&mut value.string_value),
        Kind::Boolean => {
            value.int32_values = vec![match text {
                "true" | "1" => 1,
                "false" | "0" => 0,
                _ => return Err(format!("{}: true or false", wrong())),
            }];
        }
        Kind::Int32 => value.int32_values = vec![number(text).ok_or_else(wrong)?],
        Kind::Int32s => value.int32_values = list(text, number).ok_or_else(wrong)?,
        Kind::Int64 => value.int64_values = vec![text.parse().map_err(|_| wrong())?],
        Kind::Int64s => value.int64_values = list(text, |part| part.parse().ok()).ok_or_else(wrong)?,
        Kind::Float => value.float_values = vec![text.parse().map_err(|_| wrong())?],
        Kind::Floats => value.float_values = list(text, |part| part.parse().ok()).ok_or_else(wrong)?,
        Kind::Bytes => {
            let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
            let bytes: Option<_> = (0..text.len()).step_by(2).map(digit).collect();
            value.byte_values = bytes.ok_or_else(|| format!("{}: hexadecimal digits", wrong()))?;
        }
        Kind::Mixed => return Err("a value of several kinds cannot be set from here".to_owned()),
    }
    Ok(value)
}

fn list<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(|part| read(part.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        for (prop, text) in [
            (PERF_VEHICLE_SPEED, "27.5"),
            (GEAR_SELECTION, "8"),
            (PARKING_BRAKE_ON, "true"),
            (INFO_FUEL_TYPE, "1,10"),
            (find("INFO_VIN").expect("known"), "1GCARVIN123456789"),
            (find("VHAL_HEARTBEAT").expect("known"), "-5"),
            (find("WHEEL_TICK").expect("known"), "0,1,2"),
            (0x2170_0001, "00ff10"),
        ] {
            assert_eq!(text_of(&value_of(prop, 0, text).expect(text)), text, "{prop:x}");
        }
        for (prop, text) in [
            (PERF_VEHICLE_SPEED, "fast"),
            (GEAR_SELECTION, "8.5"),
            (PARKING_BRAKE_ON, "2"),
            (INFO_FUEL_TYPE, "1,,2"),
            (0x2170_0001, "0"),
            (0x2170_0001, "äö"),
            (0x21e0_0001, "1"),
        ] {
            assert!(value_of(prop, 0, text).is_err(), "{prop:x} {text}");
        }
    }

    #[test]
    fn whatever_a_car_says_is_one_line() {
        let vin = find("INFO_VIN").expect("known");
        let value = PropValue { prop: vin, string_value: "a\nb\u{7}".to_owned(), ..PropValue::default() };
        assert_eq!(text_of(&value), "a b ");
        assert_eq!(text_of(&PropValue { status: 1, ..value.clone() }), "unavailable");
        assert_eq!(text_of(&PropValue { prop: GEAR_SELECTION, ..PropValue::default() }), "");
    }

    #[test]
    fn a_property_goes_by_its_name_or_its_number() {
        for (name, prop) in [
            ("PERF_VEHICLE_SPEED", Some(PERF_VEHICLE_SPEED)),
            ("perf_vehicle_speed", Some(PERF_VEHICLE_SPEED)),
            ("0x11600207", Some(PERF_VEHICLE_SPEED)),
            ("291504647", Some(PERF_VEHICLE_SPEED)),
            ("0xf1400001", Some(0xf140_0001_u32.cast_signed())),
            ("SPEED", None),
            ("", None),
        ] {
            assert_eq!(find(name), prop, "{name}");
        }
        assert_eq!(shown_as(PERF_VEHICLE_SPEED, 0), "vehicle.perf_vehicle_speed");
        assert_eq!(shown_as(DOOR_POS, 0x2000_0000), "vehicle.door_pos.20000000");
        assert_eq!(shown_as(0x2140_0001, 0), "vehicle.0x21400001");
    }
}
