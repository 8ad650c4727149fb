//! Vehicles, as a client asks for them.

use http::{HeaderMap, Method};

use super::{Client, Result, encode};
use crate::vehicles::{
    VehicleProperty, VehiclePropertyChange, VehiclePropertyList, VehicleReplay, VehicleReplaySpec,
    VehicleTrace, VehicleTraceList, VehicleTraceSpec,
};

impl Client {
    pub async fn list_vehicle_properties(&self, emulator: &str) -> Result<Vec<VehicleProperty>> {
        Ok(self.get::<VehiclePropertyList>(&vehicle(emulator, "properties")).await?.value.items)
    }

    pub async fn get_vehicle_property(&self, emulator: &str, property: &str) -> Result<VehicleProperty> {
        let path = vehicle(emulator, &format!("properties/{}", encode(property)));
        Ok(self.get(&path).await?.value)
    }

    pub async fn set_vehicle_property(
        &self,
        emulator: &str,
        property: &str,
        area: &str,
        change: &VehiclePropertyChange,
    ) -> Result<VehicleProperty> {
        let path = vehicle(emulator, &format!("properties/{}/{}", encode(property), encode(area)));
        Ok(self.replace(&path, change, None).await?.value)
    }

    pub async fn list_vehicle_traces(&self, emulator: &str) -> Result<Vec<VehicleTrace>> {
        Ok(self.get::<VehicleTraceList>(&vehicle(emulator, "traces")).await?.value.items)
    }

    pub async fn create_vehicle_trace(
        &self,
        emulator: &str,
        spec: &VehicleTraceSpec,
    ) -> Result<VehicleTrace> {
        Ok(self.create(&vehicle(emulator, "traces"), Some(spec)).await?.value)
    }

    pub async fn finish_vehicle_trace(&self, emulator: &str, trace: &str) -> Result<VehicleTrace> {
        let path = vehicle(emulator, &format!("traces/{}/finish", encode(trace)));
        Ok(self.create(&path, None::<&()>).await?.value)
    }

    /// As lines of JSON.
    pub async fn read_vehicle_trace(&self, emulator: &str, trace: &str) -> Result<Vec<u8>> {
        let path = vehicle(emulator, &format!("traces/{}/content", encode(trace)));
        Ok(self.request(Method::GET, &path, HeaderMap::new(), None).await?.1)
    }

    pub async fn delete_vehicle_trace(&self, emulator: &str, trace: &str) -> Result<()> {
        self.delete(&vehicle(emulator, &format!("traces/{}", encode(trace))), None).await
    }

    pub async fn create_vehicle_replay(
        &self,
        emulator: &str,
        spec: &VehicleReplaySpec,
    ) -> Result<VehicleReplay> {
        Ok(self.replace(&vehicle(emulator, "replay"), spec, None).await?.value)
    }

    pub async fn get_vehicle_replay(&self, emulator: &str) -> Result<VehicleReplay> {
        Ok(self.get(&vehicle(emulator, "replay")).await?.value)
    }

    pub async fn delete_vehicle_replay(&self, emulator: &str) -> Result<()> {
        self.delete(&vehicle(emulator, "replay"), None).await
    }
}

fn vehicle(emulator: &str, place: &str) -> String {
    format!("/api/v1/emulators/{}/vehicle/{place}", encode(emulator))
}
