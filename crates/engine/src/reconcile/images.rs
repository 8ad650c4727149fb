//! Brings in the images that come with the installation: each becomes a platform snapshot and a promoted root.

use std::time::Duration;

use paddock_model::devices::Image;
use paddock_model::id::uuid_v7;
use paddock_model::labels::Labels;
use paddock_model::layers::LayerId;
use paddock_model::permissions::Object;
use paddock_model::permissions::tuples::Holder;
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Origin, Snapshot, SnapshotState, Trust};
use paddock_model::{Error, Result};
use paddock_store::layers::{LayerState, NewLayer};
use paddock_store::{layers, relations, snapshots};
use serde_json::json;

use super::{Loop, Report, Trouble};
use crate::audit::Actor;
use crate::{Engine, audit};

pub const LOOP: Loop = Loop {
    name: "images",
    watches: &[],
    every: Duration::from_secs(300),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let mut changed = 0;
    for profile in &devices.settings.images {
        let image = devices.host.ensure_image(profile).await?;
        changed += u64::from(bring_in(engine, image).await?);
    }
    Ok(Report { changed, ..Report::default() })
}

/// Records that the image is wanted as a snapshot; its bytes follow. False when it is known.
async fn bring_in(engine: &Engine, image: Image) -> Result<bool> {
    let name = Slug::parse(&image.name)
        .ok_or_else(|| Error::internal(format!("the image's name {} cannot be a snapshot's", image.name)))?;
    if snapshots::find(&mut engine.store.read().await?, &Scope::Everything, &name).await?.is_some() {
        return Ok(false);
    }
    let now = engine.now();
    let layer = LayerId::new(now, engine.random());
    let file = image.disk.display().to_string();
    let snapshot = Snapshot {
        name,
        id: uuid_v7(now, engine.random()),
        tenant: None,
        parent: None,
        layer,
        state: SnapshotState::Creating,
        problems: Vec::new(),
        fault: None,
        image,
        rooted_at: Some(now),
        rooted_by: None,
        origin: Origin::Import { file: file.clone() },
        group: None,
        trust: Trust::Protected,
        consistency: None,
        verified: None,
        labels: Labels::new(),
        created_by: None,
        created_at: now,
        updated_at: now,
        last_used_at: None,
        use_count: 0,
        generation: 1,
    };
    let mut tx = engine.store.begin().await?;
    let bytes = NewLayer { source: Some(file), ..NewLayer::new(layer, None, LayerState::Importing) };
    layers::insert(&mut tx, &bytes, now).await?;
    if !snapshots::insert(&mut tx, &snapshot).await? {
        return Ok(false);
    }
    let system = snapshot.object().given_to("system", Holder::One(Object::system().thing()));
    relations::give(&mut tx, &system, now).await?;
    for everyone in ["user", "service_account"] {
        let tuple = snapshot.object().given_to("public", Holder::Everyone(everyone.into()));
        relations::give(&mut tx, &tuple, now).await?;
    }
    let actor = Actor { request_id: "images".to_owned(), ..Actor::default() };
    audit::record(engine, &mut tx, actor, "snapshots.import", None, snapshot.object(), json!({})).await?;
    engine.commit(tx).await?;
    Ok(true)
}
