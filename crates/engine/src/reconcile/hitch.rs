//! What stops a step of a loop: something in the world, which concerns that step alone, or something of our own, which concerns all.

use paddock_model::Error;
use paddock_model::drivers::DriverError;

pub enum Hitch {
    Driver(DriverError),
    Engine(Error),
}

impl From<DriverError> for Hitch {
    fn from(error: DriverError) -> Self {
        Hitch::Driver(error)
    }
}

impl From<Error> for Hitch {
    fn from(error: Error) -> Self {
        Hitch::Engine(error)
    }
}

impl From<paddock_store::Error> for Hitch {
    fn from(error: paddock_store::Error) -> Self {
        Hitch::Engine(error.into())
    }
}
