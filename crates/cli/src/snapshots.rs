//! Snapshots: what emulators boot from.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::emulators::DeviceType;
use paddock_api::labels::Labels;
use paddock_api::page::ListPage;
use paddock_api::snapshots::{
    DiskPool, ListSnapshots, PromoteRoot, ReadTree, Snapshot, SnapshotImport, SnapshotMemory, SnapshotNode,
    SnapshotSpec, SnapshotState, VerifiedBoot,
};
use tokio::io::{AsyncRead, ReadBuf};

use crate::confirmation::Removal;
use crate::emulators;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock snapshot list --deployable
  paddock snapshot get paddock-phone-3fe30cce5940 -o yaml
  paddock snapshot create maps-nightly --name with-maps-installed --wait
  paddock snapshot import phone.qcow2 --like paddock-phone-3fe30cce5940 --wait
  paddock snapshot tree";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock snapshot create maps-nightly
  paddock snapshot create maps-nightly --name with-maps-installed --wait
  paddock snapshot create maps-nightly --memory --wait          clones resume instead of booting
  paddock snapshot create maps-nightly --group nightly --label team=maps -o name

The device keeps running. The snapshot can be deployed once a throw-away clone of it has booted.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  paddock snapshot import phone.qcow2 --like paddock-phone-3fe30cce5940
  paddock snapshot import phone.qcow2 --like paddock-phone-3fe30cce5940 --name with-maps --tenant acme --wait
  paddock snapshot import --server-path /srv/images/phone.qcow2 --like paddock-phone-3fe30cce5940

The image is a qcow2 file that stands alone, or a raw disk. It boots as the snapshot does that --like names, and can be
deployed once a throw-away clone of it has booted.";

const UPLOAD_EXAMPLES: &str = "\
Examples:
  paddock snapshot upload with-maps phone.qcow2
  paddock snapshot upload with-maps phone.qcow2 --wait

Only for a snapshot that was made by `paddock snapshot import` and still waits for its bytes.";

const TREE_EXAMPLES: &str = "\
Examples:
  paddock snapshot tree
  paddock snapshot tree paddock-phone-3fe30cce5940 --depth 2
  paddock snapshot tree -o json | jq '.roots[].snapshot.name'";

const POOL_EXAMPLES: &str = "\
Examples:
  paddock snapshot pool
  paddock snapshot pool -o json | jq '.pools[].freeBytes'";

const PROMOTE_EXAMPLES: &str = "\
Examples:
  paddock snapshot promote with-maps-installed
  paddock snapshot promote with-maps-installed --force      although the safety check finds problems

A root is never deleted by retention, and the newest one is what new emulators boot from.";

const DEMOTE_EXAMPLES: &str = "\
Examples:
  paddock snapshot demote with-maps-installed";

const VERIFY_EXAMPLES: &str = "\
Examples:
  paddock snapshot verify with-maps-installed
  paddock snapshot verify with-maps-installed --wait";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock snapshot delete with-maps-installed                asks you first
  paddock snapshot delete with-maps-installed --dry-run      shows what would go, and what that frees
  paddock snapshot delete with-maps-installed --yes          for scripts

What was derived from it stays.";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock snapshot list
  paddock snapshot list --root --device-type phone
  paddock snapshot list --tenant acme -l team=maps -o wide
  paddock snapshot list --deployable --limit 1 -o name      the newest that can be deployed";

const GET_EXAMPLES: &str = "\
Examples:
  paddock snapshot get paddock-phone-3fe30cce5940
  paddock snapshot get paddock-phone-3fe30cce5940 -o json | jq -r .checksum";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the snapshots that you may see, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Show one snapshot
    #[command(after_help = GET_EXAMPLES)]
    Get(Get),
    /// Capture a snapshot of an emulator, which keeps running
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Bring in a disk image as a snapshot
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Import),
    /// Send the disk image of an import once more, after it was broken off
    #[command(after_help = UPLOAD_EXAMPLES)]
    Upload(Upload),
    /// Show how snapshots were derived from each other
    #[command(after_help = TREE_EXAMPLES)]
    Tree(Tree),
    /// Show how full the disk pool is
    #[command(after_help = POOL_EXAMPLES)]
    Pool,
    /// Protect a snapshot as a retention root
    #[command(after_help = PROMOTE_EXAMPLES)]
    Promote(Promote),
    /// Take a snapshot's protection back
    #[command(after_help = DEMOTE_EXAMPLES)]
    Demote(Get),
    /// Boot a throw-away clone of a snapshot again
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Verify),
    /// Delete a snapshot
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
}

#[derive(Args)]
pub struct List {
    /// Only snapshots of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    /// Only snapshots that can be deployed
    #[arg(long)]
    deployable: bool,
    /// Only promoted roots
    #[arg(long)]
    root: bool,
    /// Only snapshots of this kind of device
    #[arg(long, value_name = "TYPE", value_parser = one_of::<DeviceType>(DEVICE_TYPES))]
    device_type: Option<DeviceType>,
    /// Only snapshots that were derived from this one
    #[arg(long, value_name = "NAME")]
    parent: Option<String>,
    /// Only snapshots of this group
    #[arg(long)]
    group: Option<String>,
    /// Only snapshots that carry these labels, such as team=maps,tier!=test,owner
    #[arg(short, long, value_name = "SELECTOR")]
    label_selector: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Get {
    /// Its name
    snapshot: String,
}

#[derive(Args)]
pub struct Create {
    /// The emulator: its id (emu_…) or its name
    emulator: String,
    /// What to call it [default: something new]
    #[arg(long)]
    name: Option<String>,
    /// The group that it belongs to; retention judges each group by itself
    #[arg(long)]
    group: Option<String>,
    /// Label to write on it; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = tenants::label)]
    labels: Vec<(String, String)>,
    /// Keep the device's memory, too, so that clones resume where it stands instead of booting
    #[arg(long)]
    memory: bool,
    /// Wait until it can be deployed
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct Import {
    /// The disk image, which is sent to the server
    #[arg(required_unless_present = "server_path", conflicts_with = "server_path")]
    file: Option<PathBuf>,
    /// A file on the server instead, below a folder that its admin has opened to imports
    #[arg(long, value_name = "PATH")]
    server_path: Option<String>,
    /// What the file on the server must be: sha256:…
    #[arg(long, requires = "server_path")]
    checksum: Option<String>,
    /// The snapshot whose kernel, memory and kind of device it boots with
    #[arg(long, value_name = "SNAPSHOT")]
    like: String,
    /// What to call it [default: something new]
    #[arg(long)]
    name: Option<String>,
    /// Whose it is to be: a tenant's id (ten_…) or name [default: your only one]
    #[arg(long)]
    tenant: Option<String>,
    /// The group that it belongs to; retention judges each group by itself
    #[arg(long)]
    group: Option<String>,
    /// Label to write on it; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = tenants::label)]
    labels: Vec<(String, String)>,
    /// Wait until it can be deployed
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct Upload {
    /// Its name
    snapshot: String,
    /// The disk image
    file: PathBuf,
    /// Wait until it can be deployed
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct Tree {
    /// Only what was derived from this one
    snapshot: Option<String>,
    /// How many generations
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    depth: Option<u32>,
}

#[derive(Args)]
pub struct Promote {
    /// Its name
    snapshot: String,
    /// Although the safety check finds problems; the audit says which
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub struct Verify {
    /// Its name
    snapshot: String,
    /// Wait until the clone has booted
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct Delete {
    /// Its name
    snapshot: String,
    #[command(flatten)]
    removal: Removal,
}

pub const DEVICE_TYPES: &[&str] = &["phone", "tablet", "automotive", "tv", "wear"];

impl Row for Snapshot {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |snapshot| snapshot.name.clone()),
        Column::new("STATE", |snapshot| word(&snapshot.state)),
        Column::new("DEPLOYABLE", |snapshot| yes_or_no(snapshot.deployable)),
        Column::new("ROOT", |snapshot| yes_or_no(snapshot.root)),
        Column::new("TYPE", |snapshot| word(&snapshot.android.device_type)),
        Column::new("ANDROID", |snapshot| snapshot.android.version.clone()),
        Column::new("SIZE", |snapshot| size(snapshot.size_bytes)),
        Column::new("AGE", |snapshot| times::age(&snapshot.created_at)),
        Column::wide("MEMORY", memory),
        Column::wide("EXCLUSIVE", |snapshot| size(snapshot.exclusive_bytes)),
        Column::wide("CHILDREN", |snapshot| snapshot.child_count.to_string()),
        Column::wide("DEPTH", |snapshot| snapshot.depth.to_string()),
        Column::wide("ABI", |snapshot| snapshot.android.abi.clone()),
        Column::wide("PARENT", |snapshot| snapshot.parent.clone().unwrap_or_default()),
        Column::wide("TENANT", |snapshot| snapshot.tenant_id.clone().unwrap_or_default()),
        Column::wide("USES", |snapshot| snapshot.use_count.to_string()),
        Column::wide("PROBLEMS", |snapshot| snapshot.deployable_problems.join(",")),
        Column::wide("LABELS", |snapshot| tenants::labels(&snapshot.labels)),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

/// What clones resume from, what it takes, or why there is none.
fn memory(snapshot: &Snapshot) -> String {
    match &snapshot.memory {
        Some(memory) if snapshot.has_memory => size(memory.size_bytes),
        Some(SnapshotMemory { reason: Some(reason), .. }) => reason.code.clone(),
        Some(memory) => word(&memory.state),
        None => String::new(),
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&client.get_snapshot(&wanted.snapshot).await?.value),
        Verb::Create(wanted) => create(wanted, client, output).await,
        Verb::Import(wanted) => import(wanted, client, output).await,
        Verb::Upload(wanted) => upload(&wanted, client, output).await,
        Verb::Tree(wanted) => tree(wanted, client, output).await,
        Verb::Pool => {
            let answer = client.get_diskpool().await?;
            output.list(&answer, &answer.pools)
        }
        Verb::Promote(wanted) => {
            let body = PromoteRoot { force: wanted.force };
            output.one(&client.promote_root(&wanted.snapshot, &body).await?.value)
        }
        Verb::Demote(wanted) => output.one(&client.demote_root(&wanted.snapshot).await?.value),
        Verb::Verify(wanted) => verify(wanted, client, output).await,
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
    }
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let spec = SnapshotSpec {
        emulator_id: Some(emulators::id(&wanted.emulator, client).await?),
        import: None,
        name: wanted.name,
        group: wanted.group,
        labels: (!wanted.labels.is_empty()).then(|| Labels(wanted.labels.into_iter().collect())),
        memory: wanted.memory.then_some(true),
    };
    let snapshot = client.create_snapshot(&spec).await?.value;
    show(snapshot, wanted.wait, client, output).await
}

/// What was made, at once or when it is known whether it boots.
async fn show(mut snapshot: Snapshot, wait: bool, client: &Client, output: Output) -> Result<(), Failure> {
    let name = snapshot.name.clone();
    if wait {
        snapshot = settled(&name, None, client).await?;
    }
    output.created(&snapshot, &name)?;
    if wait {
        return proved(&snapshot);
    }
    if output.is_table() {
        output::notice(&format!("It is being taken and verified. Next: paddock snapshot get {name}"));
    }
    Ok(())
}

async fn import(wanted: Import, client: &Client, output: Output) -> Result<(), Failure> {
    let image = match &wanted.file {
        Some(path) => Some(Image::open(path)?),
        None => None,
    };
    let checksum = match &image {
        Some(image) => Some(image.checksum(output)?),
        None => wanted.checksum,
    };
    let import = SnapshotImport {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        like: wanted.like,
        path: wanted.server_path,
        checksum,
    };
    let spec = SnapshotSpec {
        emulator_id: None,
        import: Some(import),
        name: wanted.name,
        group: wanted.group,
        labels: (!wanted.labels.is_empty()).then(|| Labels(wanted.labels.into_iter().collect())),
        memory: None,
    };
    let mut snapshot = client.create_snapshot(&spec).await?.value;
    if let Some(image) = image {
        let name = snapshot.name.clone();
        snapshot = image.send(&name, client, output).await.inspect_err(|_| {
            let file = output::printable(&image.path.display().to_string());
            output::notice(&format!(
                "{name} waits for its bytes. Once it can: paddock snapshot upload {name} {file}"
            ));
        })?;
    }
    show(snapshot, wanted.wait, client, output).await
}

async fn upload(wanted: &Upload, client: &Client, output: Output) -> Result<(), Failure> {
    let snapshot = Image::open(&wanted.file)?.send(&wanted.snapshot, client, output).await?;
    show(snapshot, wanted.wait, client, output).await
}

/// A disk image here.
struct Image {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Image {
    fn open(path: &Path) -> Result<Image, Failure> {
        let unreadable = |error: io::Error| {
            Failure::Usage(output::printable(&format!("cannot read {}: {error}", path.display())))
        };
        let file = File::open(path).map_err(unreadable)?;
        let facts = file.metadata().map_err(unreadable)?;
        if !facts.is_file() {
            return Err(unreadable(io::Error::other("it is no file")));
        }
        Ok(Image { path: path.to_owned(), file, length: facts.len() })
    }

    /// Reads it from its beginning.
    fn bytes(&self, doing: &'static str, output: Output) -> Result<Watched<File>, Failure> {
        let mut file = self.file.try_clone().map_err(Failure::Runtime)?;
        file.rewind().map_err(Failure::Runtime)?;
        Ok(Watched {
            from: file,
            doing,
            length: self.length,
            read: 0,
            shown: None,
            wanted: wants_progress(output),
        })
    }

    fn checksum(&self, output: Output) -> Result<String, Failure> {
        let mut bytes = self.bytes("Reading", output)?;
        let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
        let mut buffer = vec![0; 1 << 20];
        loop {
            match bytes.read(&mut buffer).map_err(Failure::Runtime)? {
                0 => break,
                length => sum.update(&buffer[..length]),
            }
        }
        let digits: String = sum.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("sha256:{digits}"))
    }

    async fn send(&self, name: &str, client: &Client, output: Output) -> Result<Snapshot, Failure> {
        let Watched { from, doing, length, read, shown, wanted } = self.bytes("Sending", output)?;
        let from = tokio::fs::File::from_std(from);
        let bytes = Watched { from, doing, length, read, shown, wanted };
        Ok(client.upload_snapshot(name, bytes, self.length).await?.value)
    }
}

fn wants_progress(output: Output) -> bool {
    output.is_table() && io::stderr().is_terminal()
}

/// Shows on a terminal how far it has been read.
struct Watched<R> {
    from: R,
    doing: &'static str,
    length: u64,
    read: u64,
    /// In percent.
    shown: Option<u64>,
    wanted: bool,
}

impl<R> Watched<R> {
    fn has_read(&mut self, bytes: usize) {
        self.read += bytes as u64;
        let percent = (self.read * 100).checked_div(self.length).unwrap_or(100);
        if self.wanted && self.shown != Some(percent) {
            self.shown = Some(percent);
            let end = if self.read == self.length { "\n" } else { "" };
            let total = size(i64::try_from(self.length).unwrap_or(i64::MAX));
            let _ = write!(io::stderr(), "\r{} {percent:3} % of {total}{end}", self.doing);
        }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.has_read(read);
        Ok(read)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.from).poll_read(context, buffer))?;
        self.has_read(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

async fn verify(wanted: Verify, client: &Client, output: Output) -> Result<(), Failure> {
    let before = client.verify_snapshot(&wanted.snapshot).await?.value;
    if !wanted.wait {
        return output.one(&before);
    }
    let snapshot = settled(&before.name, before.verified_boot.as_ref(), client).await?;
    output.one(&snapshot)?;
    proved(&snapshot)
}

/// Returns when it is known whether it boots: when its last boot is another one than before.
async fn settled(name: &str, before: Option<&VerifiedBoot>, client: &Client) -> Result<Snapshot, Failure> {
    loop {
        let snapshot = client.get_snapshot(name).await?.value;
        match snapshot.state {
            SnapshotState::Creating | SnapshotState::Verifying => {}
            SnapshotState::Ready if snapshot.verified_boot.as_ref() == before => {}
            SnapshotState::Ready | SnapshotState::Faulted | SnapshotState::Deleting => return Ok(snapshot),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn proved(snapshot: &Snapshot) -> Result<(), Failure> {
    if snapshot.deployable {
        return Ok(());
    }
    let problems = snapshot.deployable_problems.join(", ");
    let fault = snapshot.fault.clone().unwrap_or_default();
    let message = format!("The snapshot {} cannot be deployed: {problems}. {fault}", snapshot.name);
    Err(Failure::NotReached(output::printable(message.trim())))
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let snapshot = client.get_snapshot(&wanted.snapshot).await?.value;
    let what = format!("snapshot {}, which frees {}", snapshot.name, size(snapshot.exclusive_bytes));
    if !intent.agreed("delete", &what)? {
        return output.one(&snapshot);
    }
    client.delete_snapshot(&snapshot.name, None).await?;
    output::notice(&format!("Deleting {what}."));
    Ok(())
}

async fn tree(wanted: Tree, client: &Client, output: Output) -> Result<(), Failure> {
    let tree = client.get_snapshot_tree(&ReadTree { root: wanted.snapshot, depth: wanted.depth }).await?;
    let mut rows = Vec::new();
    draw(&tree.roots, "", true, &mut rows);
    output.list(&tree, &rows)
}

/// A snapshot in the place where it is drawn.
struct Branch {
    drawn: String,
    snapshot: Snapshot,
}

impl Row for Branch {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |branch| branch.drawn.clone()),
        Column::new("STATE", |branch| word(&branch.snapshot.state)),
        Column::new("ROOT", |branch| yes_or_no(branch.snapshot.root)),
        Column::new("SIZE", |branch| size(branch.snapshot.size_bytes)),
        Column::new("EXCLUSIVE", |branch| size(branch.snapshot.exclusive_bytes)),
        Column::new("AGE", |branch| times::age(&branch.snapshot.created_at)),
    ];

    fn name(&self) -> &str {
        &self.snapshot.name
    }
}

fn draw(nodes: &[SnapshotNode], indent: &str, top: bool, rows: &mut Vec<Branch>) {
    for (at, node) in nodes.iter().enumerate() {
        let last = at + 1 == nodes.len();
        let (branch, below) = match (top, last) {
            (true, _) => ("", ""),
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("└─ ", "   "),
        };
        rows.push(Branch {
            drawn: format!("{indent}{branch}{}", node.snapshot.name),
            snapshot: node.snapshot.clone(),
        });
        draw(&node.children, &format!("{indent}{below}"), false, rows);
    }
}

impl Row for DiskPool {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |pool| pool.name.clone()),
        Column::new("STATUS", |pool| word(&pool.status)),
        Column::new("TAKEN", |pool| format!("{} %", pool.pressure)),
        Column::new("CAPACITY", |pool| size(pool.capacity_bytes)),
        Column::new("USED", |pool| size(pool.used_bytes)),
        Column::new("FREE", |pool| size(pool.free_bytes)),
        Column::new("COMMITTED", |pool| size(pool.committed_bytes)),
        Column::new("FULL IN", |pool| pool.seconds_to_full.map_or_else(|| "-".to_owned(), times::duration)),
        Column::wide("RECLAIMABLE", |pool| size(pool.reclaimable_bytes)),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let filter = ListSnapshots {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        deployable: wanted.deployable.then_some(true),
        root: wanted.root.then_some(true),
        device_type: wanted.device_type,
        state: None,
        parent: wanted.parent,
        group: wanted.group,
        label_selector: wanted.label_selector,
        limit: None,
        cursor: None,
    };
    let get = async |page: ListPage| {
        let query = ListSnapshots { limit: page.limit, cursor: page.cursor, ..filter.clone() };
        client.list_snapshots(&query).await
    };
    wanted.pages.show(output, get).await
}

fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

/// So many bytes, in the unit that people would name.
pub fn size(bytes: i64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = None;
    let mut amount = bytes as f64;
    for larger in UNITS {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        unit = Some(larger);
    }
    unit.map_or_else(|| format!("{bytes} B"), |unit| format!("{amount:.1} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_size_is_shown_in_a_fitting_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (7_217_152, "6.9 MiB"),
            (2_147_483_648, "2.0 GiB"),
            (5 << 50, "5120.0 TiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
