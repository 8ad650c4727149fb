//! Vehicle states: what the properties of a car were when a layer was captured of its device.

use paddock_model::layers::LayerId;
use paddock_model::vehicles::VehicleState;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND: &str = "
    SELECT state FROM vehicle_states WHERE layer = $1";

const PUT: &str = "
    INSERT INTO vehicle_states (layer, state) VALUES ($1, $2)
    ON CONFLICT (layer) DO UPDATE SET state = excluded.state";

const DELETE: &str = "
    DELETE FROM vehicle_states WHERE layer = $1";

pub async fn find(tx: &mut Tx, layer: LayerId) -> Result<Option<VehicleState>> {
    tx.row(FIND, args![layer]).await
}

pub async fn put(tx: &mut Tx, layer: LayerId, state: &VehicleState) -> Result<()> {
    tx.execute_one(PUT, args![layer, state.0.clone()]).await
}

/// With its layer; most have none.
pub(crate) async fn delete(tx: &mut Tx, layer: LayerId) -> Result<()> {
    tx.execute(DELETE, args![layer]).await.map(drop)
}

impl FromRow for VehicleState {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(VehicleState(row.take_json()?))
    }
}
