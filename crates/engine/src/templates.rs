//! Templates: the memory that was captured with a snapshot, from which its clones resume.

use paddock_model::Result;
use paddock_model::emulators::Reason;
use paddock_model::slug::Slug;
use paddock_model::templates::{TemplateId, TemplateState};
use paddock_store::templates::Template;
use paddock_store::{Tx, templates};

use crate::Engine;
use crate::devices::Devices;

/// Records that a device's memory is to be taken with its disk.
pub(crate) async fn want(
    engine: &Engine,
    tx: &mut Tx,
    devices: &Devices,
    snapshot: &Slug,
) -> Result<TemplateId> {
    let now = engine.now();
    let template = Template {
        id: TemplateId::new(now, engine.random()),
        snapshot: snapshot.clone(),
        state: TemplateState::Wanted,
        fingerprint: None,
        allocated_bytes: 0,
        proved_at: None,
        resume_ms: None,
        reason: None,
        trial: None,
        deadline_at: now + devices.settings.capture_deadline,
        due_at: None,
        failures: 0,
        created_at: now,
    };
    templates::insert(tx, &template).await?;
    Ok(template.id)
}

/// The memory that is to be taken with a snapshot's disk.
pub(crate) async fn wanted(tx: &mut Tx, snapshot: &Slug) -> Result<Option<TemplateId>> {
    let found = templates::of_snapshot(tx, snapshot).await?;
    Ok(found.filter(|template| template.state == TemplateState::Wanted).map(|template| template.id))
}

/// What a clone of the snapshot may resume from.
pub(crate) async fn usable(tx: &mut Tx, snapshot: &Slug) -> Result<Option<TemplateId>> {
    let found = templates::of_snapshot(tx, snapshot).await?;
    Ok(found.filter(Template::is_usable).map(|template| template.id))
}

/// The disk was taken; the loop finds out what came of the memory. Without a device that ran there is none.
pub(crate) async fn take(engine: &Engine, tx: &mut Tx, snapshot: &Slug, missing: Option<&str>) -> Result<()> {
    let Some(template) = templates::of_snapshot(tx, snapshot).await? else { return Ok(()) };
    if template.state != TemplateState::Wanted {
        return Ok(());
    }
    let after = match missing {
        Some(why) => failed(engine, &template, "memory_missing", why),
        None => Template { state: TemplateState::Taken, due_at: Some(engine.now()), ..template },
    };
    templates::update(tx, &after).await?;
    Ok(())
}

/// It is of no use for this reason; the loop removes what is left of it.
pub(crate) fn failed(engine: &Engine, template: &Template, code: &str, message: &str) -> Template {
    tracing::warn!(snapshot = %template.snapshot, template = %template.id, code, message, "a snapshot has no memory");
    Template {
        state: TemplateState::Failed,
        reason: Some(Reason::new(code, message)),
        proved_at: None,
        resume_ms: None,
        due_at: Some(engine.now()),
        failures: 0,
        ..template.clone()
    }
}

/// Its snapshot goes, or its disk never came to be.
pub(crate) async fn let_go(engine: &Engine, tx: &mut Tx, snapshot: &Slug) -> Result<()> {
    Ok(templates::let_go(tx, snapshot, engine.now()).await?)
}

/// A clone is to resume from it once more. It stays usable until that fails.
pub(crate) async fn prove_again(
    engine: &Engine,
    tx: &mut Tx,
    devices: &Devices,
    snapshot: &Slug,
) -> Result<()> {
    let found = templates::of_snapshot(tx, snapshot).await?;
    let proved = found.filter(|template| template.state == TemplateState::Ready && template.trial.is_none());
    let Some(template) = proved else { return Ok(()) };
    let now = engine.now();
    let again = Template {
        state: TemplateState::Made,
        deadline_at: now + devices.settings.capture_deadline,
        due_at: Some(now),
        ..template
    };
    templates::update(tx, &again).await?;
    Ok(())
}

/// Whether it is known what has become of a snapshot's memory.
pub(crate) async fn is_settled(tx: &mut Tx, snapshot: &Slug) -> Result<bool> {
    let found = templates::of_snapshot(tx, snapshot).await?;
    Ok(found.is_none_or(|template| template.state.is_settled()))
}
