//! Imports: a disk image from outside becomes a snapshot, be it a file on the server or bytes that somebody sends.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use paddock_model::caller::Caller;
use paddock_model::drivers::DriverError;
use paddock_model::drivers::disk_pools::Bytes;
use paddock_model::error::{Fault, Kind};
use paddock_model::expected::Expected;
use paddock_model::labels::Labels;
use paddock_model::layers::LayerId;
use paddock_model::permissions::Relation;
use paddock_model::snapshots::{Origin, Trust};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::layers;
use paddock_store::layers::{Layer, LayerState, NewLayer};
use serde_json::json;

use crate::devices::{Devices, Settings};
use crate::emulators::require_room;
use crate::snapshots::{self, Described, Draft, describe_one};
use crate::{Engine, audit, idempotency_keys, permissions, tenants};

/// How long somebody may take to send what was announced.
pub(crate) const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a caller may say about a disk image that is to be brought in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSpec {
    pub tenant: Option<TenantId>,
    /// The snapshot whose image the disk boots with.
    pub like: String,
    /// A file on the server; without one, the bytes are sent.
    pub path: Option<String>,
    /// SHA-256 over the bytes, in hexadecimal digits.
    pub digest: Option<String>,
    pub name: Option<String>,
    pub group: Option<String>,
    pub labels: Labels,
}

/// Where a disk image comes from.
enum Source {
    File { folder: PathBuf, path: PathBuf, digest: Option<String> },
    Sender { digest: String },
}

/// Wants a disk image as a snapshot. A loop takes a file on the server; anything else waits to be sent.
pub async fn create(engine: &Engine, caller: &Caller, spec: ImportSpec) -> Result<Described> {
    let tenant = tenants::meant(engine, caller, spec.tenant).await?;
    let devices = engine.devices()?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    permissions::require(engine, caller, Relation::CanImportSnapshot, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return describe_one(engine, &mut tx, caller, earlier).await;
    }
    let like = snapshots::find(engine, &mut tx, caller, &spec.like).await?;
    let source = source(&devices.settings, spec.path.as_deref(), spec.digest)?;
    require_room(engine, &mut tx, caller, tenant.id).await?;
    let layer = LayerId::new(now, engine.random());
    let (stem, file, bytes) = match source {
        Source::File { folder, path, digest } => {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let bytes = NewLayer {
                source: Some(path.display().to_string()),
                folder: Some(folder.display().to_string()),
                expected: digest,
                ..NewLayer::new(layer, None, LayerState::Importing)
            };
            (stem, folder.join(path).display().to_string(), bytes)
        }
        Source::Sender { digest } => {
            let waiting = NewLayer::new(layer, None, LayerState::Uploading);
            ("import".to_owned(), "upload".to_owned(), NewLayer { expected: Some(digest), ..waiting })
        }
    };
    layers::insert(&mut tx, &bytes, now).await?;
    let draft = Draft {
        name: snapshots::name(spec.name.as_deref(), &stem, layer)?,
        tenant: tenant.id,
        parent: None,
        layer,
        image: like.image,
        origin: Origin::Import { file: file.clone() },
        group: spec.group,
        trust: Trust::Internal,
        labels: spec.labels,
    };
    let snapshot = snapshots::begin(engine, &mut tx, caller, draft).await?;
    let details = json!({ "import": file, "like": like.name });
    snapshots::announce(engine, tx, caller, snapshot, details).await
}

fn source(settings: &Settings, path: Option<&str>, digest: Option<String>) -> Result<Source> {
    let invalid = |pointer: &str, code: &'static str, message: &str| {
        let fault = Fault { pointer: pointer.into(), code: code.into(), message: message.to_owned() };
        Error::invalid(vec![fault])
    };
    let Some(path) = path.map(Path::new) else {
        let missing = "without a path the bytes are sent, and their checksum must be known before";
        return digest
            .map(|digest| Source::Sender { digest })
            .ok_or_else(|| invalid("/import/checksum", "required", missing));
    };
    if settings.import_folders.is_empty() {
        let detail = "No folder of the server is open to imports. An admin can name some with the setting snapshots.import_folders; or leave out the path and send the image.";
        return Err(Error::new(Kind::Forbidden, "imports_closed", detail));
    }
    let plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if !path.is_absolute() || !plain {
        let message = "an absolute path without `..`";
        return Err(invalid("/import/path", "invalid_path", message));
    }
    let within = |folder: &PathBuf| {
        let path = path.strip_prefix(folder).ok()?;
        (path != Path::new("")).then(|| (folder.clone(), path.to_owned()))
    };
    // What decides is how the file is opened; this only spares everyone the way there.
    let found = settings.import_folders.iter().find_map(within);
    let outside = "it is below no folder that the setting snapshots.import_folders names";
    let (folder, path) = found.ok_or_else(|| invalid("/import/path", "outside_folders", outside))?;
    Ok(Source::File { folder, path, digest })
}

/// A disk image on its way in.
pub struct Content<'a> {
    /// If the sender has said how much there is.
    pub length: Option<u64>,
    pub bytes: Bytes<'a>,
}

/// Takes the bytes of a snapshot that waits for them: all, with the checksum that was announced, or none.
pub async fn upload(
    engine: &Engine,
    caller: &Caller,
    name: &str,
    expected: &Expected,
    content: Content<'_>,
) -> Result<Described> {
    let devices = engine.devices()?;
    let mut tx = engine.store.read().await?;
    let snapshot = snapshots::find(engine, &mut tx, caller, name).await?;
    let tenant = snapshot.tenant.map_or_else(paddock_model::permissions::Object::system, TenantId::object);
    permissions::require(engine, caller, Relation::CanImportSnapshot, &tenant)?;
    expected.require(snapshot.generation)?;
    drop(tx);
    let in_progress = || {
        let detail = "Somebody is sending it at this moment. Wait until that is done, or has failed.";
        Error::conflict("upload_in_progress", detail)
    };
    let _turn = devices.take_turn(snapshot.layer).ok_or_else(in_progress)?;
    // Looked at now that nobody else can send it.
    let mut tx = engine.store.read().await?;
    let layer = layers::find(&mut tx, snapshot.layer).await?;
    let digest = layer
        .filter(|layer| layer.state == LayerState::Uploading)
        .and_then(|layer| layer.expected)
        .ok_or_else(not_waiting)?;
    if let Some(tenant) = snapshot.tenant {
        require_room(engine, &mut tx, caller, tenant).await?;
    }
    drop(tx);
    let most = devices.settings.upload_bytes;
    require_fit(devices, content.length, most).await?;
    let received = devices.pool.receive(snapshot.layer, content.bytes, most, Some(&digest)).await;
    received.map_err(|error| refusal(devices, error, most))?;

    let mut tx = engine.store.begin().await?;
    if !layers::received(&mut tx, snapshot.layer).await? {
        drop(tx);
        discard(devices, snapshot.layer).await;
        return Err(not_waiting());
    }
    let (tenant, object) = (snapshot.tenant, snapshot.object());
    audit::record(engine, &mut tx, caller, "snapshots.upload", tenant, object, json!({})).await?;
    let described = describe_one(engine, &mut tx, caller, snapshot).await?;
    engine.commit(tx).await?;
    Ok(described)
}

fn not_waiting() -> Error {
    let detail =
        "It does not wait for any bytes: it was not announced as an upload, or they are there already.";
    Error::conflict("invalid_state", detail)
}

/// Refuses what cannot fit before anybody sends it.
async fn require_fit(devices: &Devices, length: Option<u64>, most: u64) -> Result<()> {
    let Some(length) = length else { return Ok(()) };
    if length > most {
        return Err(too_large(most));
    }
    let capacity = devices.pool.capacity().await.map_err(Error::internal)?;
    if i64::try_from(length).unwrap_or(i64::MAX) > capacity.free_bytes {
        return Err(no_room(devices));
    }
    Ok(())
}

fn too_large(most: u64) -> Error {
    let detail = format!(
        "The image is larger than {most} bytes. An admin can allow more with the setting snapshots.upload_bytes."
    );
    Error::new(Kind::TooLarge, "body_too_large", detail)
}

fn no_room(devices: &Devices) -> Error {
    let detail = format!(
        "The disk pool {} has no room for it. Delete what nobody needs, or ask for more room; then send it again.",
        devices.pool.name()
    );
    Error::unavailable("no_capacity", detail).with_retry_after(Duration::from_secs(60))
}

fn refusal(devices: &Devices, error: DriverError, most: u64) -> Error {
    match error.code {
        "checksum_mismatch" => {
            let detail = format!("Nothing was kept: {}. Send it again.", error.message);
            Error::new(Kind::Invalid, "checksum_mismatch", detail)
        }
        "too_large" => too_large(most),
        "no_space" => no_room(devices).with_cause(error),
        "broken_off" => {
            let detail = "The body ended before its end, and nothing of it was kept. Send it again.";
            Error::malformed("incomplete_body", detail).with_cause(error)
        }
        _ => Error::internal(error),
    }
}

/// What cannot be removed now is found again by a loop.
async fn discard(devices: &Devices, layer: LayerId) {
    if let Err(error) = devices.pool.discard(layer).await {
        tracing::warn!(%layer, %error, "what was sent in vain is still in the pool");
    }
}

/// Whether what was received for the layer is still of use.
pub(crate) fn is_awaited(layer: &Layer) -> bool {
    matches!(layer.state, LayerState::Uploading | LayerState::Importing)
}
