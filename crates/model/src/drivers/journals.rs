//! The door to journals: each keeps an emulator's log within bounds, and outlives the process and the device.

use async_trait::async_trait;

use super::DriverResult;
use crate::emulators::EmulatorId;
use crate::logs::{Marks, Offset, Record};

/// Where a journal stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What the next record will be called.
    pub next: Offset,
    /// The oldest that is kept; `next` when nothing is.
    pub oldest: Offset,
    pub marks: Marks,
    /// What was written last may be lost: the machine has started since.
    pub uncertain: bool,
}

/// A position in a journal, and where it was found, so that it need not be looked for again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The first record that is wanted.
    pub from: Offset,
    /// A segment's first record, and a byte in it.
    pub at: Option<(Offset, u64)>,
}

/// Records that follow each other. What is asked for and no more there is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// None at the end.
    pub records: Vec<(Offset, Record)>,
    pub next: Place,
}

#[async_trait]
pub trait Journals: Send + Sync + 'static {
    /// One that is not there yet is empty. What a crash has torn is cut off.
    async fn head(&self, emulator: EmulatorId) -> DriverResult<Head>;

    /// All of the records with the marks, or nothing; returns what the first one is called. One at a time for an emulator.
    async fn append(
        &self,
        emulator: EmulatorId,
        records: Vec<Record>,
        marks: Marks,
    ) -> DriverResult<(Offset, Vec<Record>)>;

    /// Some records from this place on, in bounded pieces.
    async fn read(&self, emulator: EmulatorId, place: Place) -> DriverResult<Piece>;

    /// The first records of the parts that a journal is kept in, newest first: from each on, reading is cheap.
    async fn parts(&self, emulator: EmulatorId) -> DriverResult<Vec<Offset>>;

    async fn list(&self) -> DriverResult<Vec<EmulatorId>>;

    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()>;
}
