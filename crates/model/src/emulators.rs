//! Emulators: devices that run.

use crate::permissions::Object;

crate::id!(EmulatorId, "emu");

impl EmulatorId {
    pub fn object(self) -> Object {
        Object::new("emulator", self)
    }
}
