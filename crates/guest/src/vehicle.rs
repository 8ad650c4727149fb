//! The car as the device sees it: what it last heard of each property, and the way to ask and to tell.
//!
//! The car stands outside and is a gRPC server; the device is its client, as Android's vehicle HAL is.

mod client;
mod grpc;
mod names;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub use client::start;
pub use names::{
    CURRENT_GEAR, DISTANCE_DISPLAY_UNITS, DOOR_POS, ENV_OUTSIDE_TEMPERATURE, EV_BATTERY_LEVEL, FUEL_LEVEL,
    FUEL_LEVEL_LOW, GEAR_SELECTION, HAZARD_LIGHTS_STATE, HEADLIGHTS_STATE, HVAC_TEMPERATURE_DISPLAY_UNITS,
    INFO_EV_BATTERY_CAPACITY, INFO_FUEL_CAPACITY, INFO_FUEL_TYPE, Kind, PARKING_BRAKE_ON, PERF_ODOMETER,
    PERF_VEHICLE_SPEED, RANGE_REMAINING, TURN_SIGNAL_STATE, VEHICLE_SPEED_DISPLAY_UNITS, find, name_of,
    number, text_of, value_of,
};
pub use wire::{CONTINUOUS, PropConfig, PropValue, READ, STATIC, WRITE};

use client::Car;

/// Whether the device has its car, `1` or `0`.
pub const CONNECTED: &str = "sys.vehicle.connected";
/// How long a tool waits for the car.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Link {
    /// The host has told of no car.
    #[default]
    Absent,
    Connecting,
    Connected,
}

impl Link {
    pub fn name(self) -> &'static str {
        match self {
            Link::Absent => "absent",
            Link::Connecting => "connecting",
            Link::Connected => "connected",
        }
    }
}

#[derive(Default)]
pub struct Vehicle {
    state: Mutex<State>,
    /// Where the car is, as the host has said it last.
    told: watch::Sender<Option<SocketAddr>>,
}

#[derive(Default)]
struct State {
    link: Link,
    known: Known,
    /// The way to the car while there is one.
    car: Option<(Handle, Car)>,
}

/// What was heard of the car.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    pub configs: BTreeMap<i32, PropConfig>,
    pub values: BTreeMap<(i32, i32), PropValue>,
}

impl Known {
    /// A value that means something.
    fn available(&self, prop: i32, area: i32) -> Option<&PropValue> {
        self.values.get(&(prop, area)).filter(|value| value.is_available())
    }

    pub fn int(&self, prop: i32, area: i32) -> Option<i32> {
        self.available(prop, area)?.int32_values.first().copied()
    }

    pub fn is_set(&self, prop: i32) -> bool {
        self.int(prop, 0).is_some_and(|value| value != 0)
    }

    /// A number that is one.
    pub fn float(&self, prop: i32) -> Option<f32> {
        self.available(prop, 0)?.float_values.first().copied().filter(|value| value.is_finite())
    }

    pub fn ints(&self, prop: i32) -> &[i32] {
        self.available(prop, 0).map_or(&[], |value| &value.int32_values)
    }

    /// Takes what is not older than what is known already; says what has to be shown.
    fn take(&mut self, values: Vec<PropValue>) -> Vec<PropValue> {
        let mut news = Vec::new();
        for value in values {
            // What nobody announced is nobody's: a car could fill the device's memory with it.
            if self.configs.get(&value.prop).is_none_or(|config| config.access_in(value.area_id).is_none()) {
                continue;
            }
            let place = (value.prop, value.area_id);
            if self.values.get(&place).is_none_or(|known| known.timestamp <= value.timestamp) {
                news.push(value.clone());
                self.values.insert(place, value);
            }
        }
        news
    }
}

impl Vehicle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The car is there from now on, and what was known was perhaps another one's: after a start, and after a resume from memory.
    pub fn aim(&self, address: Option<SocketAddr>) {
        let link = if address.is_some() { Link::Connecting } else { Link::Absent };
        *self.lock() = State { link, ..State::default() };
        self.told.send_replace(address);
    }

    pub fn link(&self) -> Link {
        self.lock().link
    }

    pub fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.lock().known)
    }

    /// Asks the car itself, under Android's rules.
    pub fn get(&self, prop: i32, area: i32) -> Result<PropValue, String> {
        let (handle, car) = self.way(prop, area, READ)?;
        let wanted = PropValue { prop, area_id: area, ..PropValue::default() };
        let asked = async { tokio::time::timeout(PATIENCE, car.get(vec![wanted])).await };
        let mut results = handle
            .block_on(asked)
            .map_err(|_| "the car does not answer".to_owned())?
            .map_err(|error| format!("{error:#}"))?;
        match results.pop() {
            Some(result) if result.status != wire::OK => Err(wire::status_name(result.status)),
            Some(wire::ValueResult { value: Some(value), .. }) => Ok(value),
            _ => Err("NOT_AVAILABLE".to_owned()),
        }
    }

    /// Tells the car, under Android's rules.
    pub fn set(&self, value: PropValue) -> Result<(), String> {
        let (handle, car) = self.way(value.prop, value.area_id, WRITE)?;
        let asked = async { tokio::time::timeout(PATIENCE, car.set(value)).await };
        let status = handle
            .block_on(asked)
            .map_err(|_| "the car does not answer".to_owned())?
            .map_err(|error| format!("{error:#}"))?;
        if status == wire::OK { Ok(()) } else { Err(wire::status_name(status)) }
    }

    /// The car does not look at who may do what: Android does, and so does this device.
    fn way(&self, prop: i32, area: i32, access: i32) -> Result<(Handle, Car), String> {
        let state = self.lock();
        let way = state.car.clone().ok_or("the car is not connected")?;
        let name = name_of(prop);
        let config =
            state.known.configs.get(&prop).ok_or_else(|| format!("INVALID_ARG: the car has no {name}"))?;
        let allowed = config.access_in(area).ok_or_else(|| {
            let areas: Vec<_> = config.areas().iter().map(|area| format!("0x{area:x}")).collect();
            format!("INVALID_ARG: {name} has no area 0x{area:x}, only {}", areas.join(" "))
        })?;
        if allowed & access == 0 {
            let may_not = if access == WRITE { "is read-only" } else { "cannot be read" };
            return Err(format!("ACCESS_DENIED: {name} {may_not}"));
        }
        Ok(way)
    }
}

#[cfg(test)]
mod tests {
    use super::wire::AreaConfig;
    use super::*;

    fn known() -> Known {
        let config = |prop, access, areas: &[(i32, i32)]| {
            let area_configs =
                areas.iter().map(|(area_id, access)| AreaConfig { area_id: *area_id, access: *access });
            (prop, PropConfig { prop, access, area_configs: area_configs.collect(), ..PropConfig::default() })
        };
        let configs =
            [config(PERF_VEHICLE_SPEED, READ, &[]), config(DOOR_POS, READ | WRITE, &[(1, 0), (4, READ)])];
        Known { configs: configs.into(), ..Known::default() }
    }

    fn speed(timestamp: i64, speed: f32) -> PropValue {
        PropValue { prop: PERF_VEHICLE_SPEED, timestamp, float_values: vec![speed], ..PropValue::default() }
    }

    #[test]
    fn what_is_older_than_what_is_known_is_dropped() {
        let mut known = known();
        for (value, shown) in [
            (speed(10, 1.0), Some(1.0)),
            (speed(9, 2.0), None),
            (speed(10, 3.0), Some(3.0)),
            (speed(11, 4.0), Some(4.0)),
            (PropValue { prop: GEAR_SELECTION, ..speed(12, 5.0) }, None),
            (PropValue { area_id: 1, ..speed(12, 5.0) }, None),
        ] {
            let news = known.take(vec![value]);
            assert_eq!(news.first().map(|value| value.float_values[0]), shown);
        }
        assert_eq!(known.float(PERF_VEHICLE_SPEED), Some(4.0));
        known.take(vec![PropValue { status: 1, ..speed(12, 9.0) }]);
        assert_eq!(known.float(PERF_VEHICLE_SPEED), None);
        known.take(vec![speed(13, f32::NAN)]);
        assert_eq!(known.float(PERF_VEHICLE_SPEED), None);
    }

    #[test]
    fn access_is_that_of_the_area_where_it_says_any() {
        let known = known();
        for (prop, area, access) in [
            (PERF_VEHICLE_SPEED, 0, Some(READ)),
            (PERF_VEHICLE_SPEED, 1, None),
            (DOOR_POS, 0, None),
            (DOOR_POS, 1, Some(READ | WRITE)),
            (DOOR_POS, 4, Some(READ)),
        ] {
            assert_eq!(known.configs[&prop].access_in(area), access, "{prop:x} {area}");
        }
    }

    #[test]
    fn nothing_is_asked_of_a_car_that_is_not_there() {
        let vehicle = Vehicle::default();
        assert_eq!(vehicle.link(), Link::Absent);
        vehicle.aim(Some(([10, 0, 2, 100], 9300).into()));
        assert_eq!(vehicle.link(), Link::Connecting);
        assert_eq!(vehicle.set(speed(0, 1.0)), Err("the car is not connected".to_owned()));
    }
}
