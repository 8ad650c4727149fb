//! Where disks are kept: real ones in a folder, or none but their names.

pub mod qcow2;
pub mod simulated;

use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::LayerId;

fn require_digest(wanted: Option<&str>, found: &str) -> DriverResult<()> {
    match wanted {
        Some(wanted) if wanted != found => {
            let message = format!("the checksum of the bytes is sha256:{found}, and not sha256:{wanted}");
            Err(DriverError::new(Retry::Never, "checksum_mismatch", message))
        }
        _ => Ok(()),
    }
}

fn too_large(most: u64) -> DriverError {
    DriverError::new(Retry::Never, "too_large", format!("there are more than {most} bytes"))
}

fn broken_off(error: std::io::Error) -> DriverError {
    DriverError::new(Retry::Never, "broken_off", "the bytes ended before their end").with_cause(error)
}

fn not_received(layer: LayerId) -> DriverError {
    let message = format!("what was sent for {layer} is not in the pool any more; send it again");
    DriverError::new(Retry::Never, "not_received", message)
}
