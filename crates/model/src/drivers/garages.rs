//! The door to the cars around automotive devices.
//!
//! A car stands on the host's side: the device inside is one of its clients. Cars outlive this process as devices do: what was set is
//! there for whoever opens the garage next.

use async_trait::async_trait;

use super::DriverResult;
use super::emulator_hosts::ByteStream;
use crate::emulators::EmulatorId;
use crate::vehicles::{
    AreaId, Property, PropertyChange, PropertyId, Replay, Trace, TraceId, VehicleOrder, VehicleState,
};

/// Codes of refusals that are the asker's fault.
pub const NO_SUCH_PROPERTY: &str = "no_such_property";
pub const NO_SUCH_AREA: &str = "no_such_area";
pub const WRONG_VALUE: &str = "wrong_value";
pub const NOT_AVAILABLE: &str = "not_available";
pub const NO_SUCH_TRACE: &str = "no_such_trace";
pub const WRONG_TRACE: &str = "wrong_trace";
pub const TOO_MANY_TRACES: &str = "too_many_traces";
/// There is no car, or nobody holds it at the moment.
pub const NO_VEHICLE: &str = "no_vehicle";

#[async_trait]
pub trait Garage: Send + Sync + 'static {
    /// Has the emulator's car stand ready as ordered. From here on, until `remove` or `let_go`, this process holds it.
    async fn ensure(&self, order: &VehicleOrder) -> DriverResult<()>;

    /// Removes the car, its traces and every trace of it.
    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()>;

    /// This process holds no car any more: somebody else is to.
    async fn let_go(&self);

    /// Every emulator of whose car there is anything.
    async fn list(&self) -> DriverResult<Vec<EmulatorId>>;

    /// What travels with a snapshot; nothing when there is no car.
    async fn state(&self, emulator: EmulatorId) -> DriverResult<Option<VehicleState>>;

    /// A connection on which the car speaks HTTP/2, also if another process holds it.
    async fn open(&self, emulator: EmulatorId) -> DriverResult<Box<dyn ByteStream>>;

    /// The number behind a name, or behind digits with or without `0x`.
    fn find(&self, name: &str) -> Option<PropertyId>;

    async fn properties(&self, emulator: EmulatorId) -> DriverResult<Vec<Property>>;

    async fn set(
        &self,
        emulator: EmulatorId,
        property: PropertyId,
        area: AreaId,
        change: &PropertyChange,
    ) -> DriverResult<Property>;

    async fn traces(&self, emulator: EmulatorId) -> DriverResult<Vec<Trace>>;

    /// Records from now on whatever is told of the car's properties.
    async fn record(&self, emulator: EmulatorId, trace: TraceId, name: &str) -> DriverResult<Trace>;

    /// Ends a recording; one that has ended stays as it is.
    async fn finish(&self, emulator: EmulatorId, trace: TraceId) -> DriverResult<Trace>;

    /// Takes a trace that was recorded elsewhere.
    async fn take(
        &self,
        emulator: EmulatorId,
        trace: TraceId,
        name: &str,
        content: &[u8],
    ) -> DriverResult<Trace>;

    /// As lines of JSON.
    async fn content(&self, emulator: EmulatorId, trace: TraceId) -> DriverResult<Vec<u8>>;

    async fn delete(&self, emulator: EmulatorId, trace: TraceId) -> DriverResult<()>;

    /// Tells the car everything that a trace holds, at its pace; what was being replayed ends.
    async fn replay(
        &self,
        emulator: EmulatorId,
        trace: TraceId,
        speed: f64,
        repeat: bool,
    ) -> DriverResult<Replay>;

    /// The last replay; goes on after a restart of this process.
    async fn replaying(&self, emulator: EmulatorId) -> DriverResult<Option<Replay>>;

    async fn stop_replay(&self, emulator: EmulatorId) -> DriverResult<Option<Replay>>;
}
