//! Emulators: devices that run.

use serde::{Deserialize, Serialize};

crate::id!(EmulatorId, "emu");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceType {
    Phone,
    Tablet,
    Automotive,
    Tv,
    Wear,
}

impl DeviceType {
    pub const ALL: [DeviceType; 5] =
        [DeviceType::Phone, DeviceType::Tablet, DeviceType::Automotive, DeviceType::Tv, DeviceType::Wear];

    pub const fn name(self) -> &'static str {
        match self {
            DeviceType::Phone => "phone",
            DeviceType::Tablet => "tablet",
            DeviceType::Automotive => "automotive",
            DeviceType::Tv => "tv",
            DeviceType::Wear => "wear",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        DeviceType::ALL.into_iter().find(|kind| kind.name() == text)
    }
}
