//! Logs: what an emulator and its device have said, from a journal that is kept, and from now on.

use paddock_model::Result;
use paddock_model::caller::Caller;
use paddock_model::drivers::emulator_hosts::Channel;
use paddock_model::emulators::EmulatorId;

pub use crate::feeds::{Batch, End, Next, Reader, Request};

use crate::Engine;
use crate::feeds::unreadable;
use crate::streams::{self, Stream};

/// Opens an emulator's log where the request says; the stream tells when the caller has to be sent away.
pub async fn logs(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    request: &Request,
) -> Result<(Reader, Stream)> {
    let (emulator, stream) = streams::admit(engine, caller, id, Channel::Log).await?;
    let feed = engine.devices()?.feeds.feed(emulator.id).await.map_err(unreadable)?;
    Ok((Reader::open(feed, request).await?, stream))
}
