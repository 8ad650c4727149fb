//! Where backups are kept: a repository a tenant, in restic's format, in a folder or in an S3-compatible store.

mod objects;
mod restic;
mod s3;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::drivers::backup_repositories::{
    BackupOrder, BackupRepositories, Failure, Fetched, Progress, StoredBackup,
};
use paddock_model::drivers::disk_pools::DiskContent;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::tenants::TenantId;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{RwLock, mpsc};

use self::objects::{Folder, Objects};
use self::restic::{Reading, Repository, Writing, crypto};
use self::s3::S3Objects;
use crate::durable::{self, io_error, on_a_thread};

pub use self::s3::S3Settings;

#[derive(Debug, Clone)]
pub struct RepositorySettings {
    pub place: RepositoryPlace,
    /// Where the passwords of tenants are, a file each, for the server's account alone.
    pub keys: PathBuf,
}

#[derive(Debug, Clone)]
pub enum RepositoryPlace {
    /// Each repository in a folder named after its tenant.
    Folder(PathBuf),
    S3(S3Settings),
}

/// Repositories in restic's format.
pub struct ResticRepositories {
    place: Place,
    keys: PathBuf,
    open: Mutex<HashMap<TenantId, Arc<Tenancy>>>,
}

enum Place {
    Folder(PathBuf),
    S3 { settings: S3Settings, store: Arc<object_store::aws::AmazonS3>, runtime: tokio::runtime::Handle },
}

/// One tenant's repository. Many add to it and read from it at once; who removes from it is alone.
#[derive(Default)]
struct Tenancy {
    opened: tokio::sync::Mutex<Option<Arc<Repository>>>,
    turn: Arc<RwLock<()>>,
}

fn busy() -> DriverError {
    let message = "backups and restores are under way in the repository; it goes on when they are done";
    DriverError::new(Retry::Soon, "repository_busy", message)
}

impl ResticRepositories {
    /// Must be called within a runtime. Nothing is looked at before it is needed.
    pub fn new(settings: RepositorySettings) -> DriverResult<ResticRepositories> {
        let place = match settings.place {
            RepositoryPlace::Folder(folder) => Place::Folder(folder),
            RepositoryPlace::S3(settings) => {
                let store = s3::open(&settings)?;
                Place::S3 { settings, store, runtime: tokio::runtime::Handle::current() }
            }
        };
        Ok(ResticRepositories { place, keys: settings.keys, open: Mutex::default() })
    }

    fn tenancy(&self, tenant: TenantId) -> Arc<Tenancy> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).entry(tenant).or_default().clone()
    }

    fn objects(&self, tenant: TenantId) -> Arc<dyn Objects> {
        let name = tenant.to_string();
        match &self.place {
            Place::Folder(folder) => Arc::new(Folder::new(folder.join(name))),
            Place::S3 { settings, store, runtime } => Arc::new(S3Objects {
                store: store.clone(),
                runtime: runtime.clone(),
                bucket: settings.bucket.clone(),
                endpoint: settings.endpoint.clone(),
                prefix: match settings.prefix.trim_matches('/') {
                    "" => name,
                    prefix => format!("{prefix}/{name}"),
                },
            }),
        }
    }

    /// To open one takes a while, on purpose, so it stays open.
    async fn repository(&self, tenancy: &Tenancy, tenant: TenantId) -> DriverResult<Arc<Repository>> {
        let mut opened = tenancy.opened.lock().await;
        if let Some(repository) = &*opened {
            return Ok(repository.clone());
        }
        let (objects, keys) = (self.objects(tenant), self.keys.clone());
        let repository = on_a_thread(move || {
            let password = password(&keys, tenant, &*objects)?;
            Repository::open(objects, &password)
        });
        let repository = Arc::new(repository.await?);
        *opened = Some(repository.clone());
        Ok(repository)
    }

    /// Whether there is anything of the tenant's at all.
    async fn exists(&self, tenant: TenantId) -> DriverResult<bool> {
        let objects = self.objects(tenant);
        on_a_thread(move || match objects.get("config") {
            Ok(_) => Ok(true),
            Err(error) if error.code == "object_missing" => Ok(false),
            Err(error) => Err(error),
        })
        .await
    }
}

fn missing(tenant: TenantId) -> DriverError {
    let message = format!(
        "the repository of {tenant} is not where it was; is its disk mounted, is the bucket the same?"
    );
    DriverError::new(Retry::Later, "repository_missing", message)
}

/// The password of a tenant's repository; one is made for a repository that is yet to be.
fn password(keys: &std::path::Path, tenant: TenantId, objects: &dyn Objects) -> DriverResult<String> {
    let path = keys.join(tenant.to_string());
    let failed = |error| io_error(&format!("reach the key {}", path.display()), error);
    match fs::read_to_string(&path) {
        Ok(password) => return Ok(password.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    match objects.get("config") {
        Err(error) if error.code == "object_missing" => {}
        Err(error) => return Err(error),
        Ok(_) => {
            let message = format!(
                "the key of the repository in {} is gone; put it back into {}",
                objects.location(),
                path.display()
            );
            return Err(DriverError::new(Retry::Later, "key_missing", message));
        }
    }
    let password = URL_SAFE_NO_PAD.encode(crypto::random::<32>()?);
    durable::make_folder(keys).map_err(failed)?;
    durable::write(&path, format!("{password}\n").as_bytes(), 0o600).map_err(failed)?;
    Ok(password)
}

#[async_trait]
impl BackupRepositories for ResticRepositories {
    fn location(&self, tenant: TenantId) -> String {
        self.objects(tenant).location()
    }

    async fn store(
        &self,
        order: &BackupOrder,
        content: Box<dyn DiskContent>,
        progress: Arc<Progress>,
    ) -> DriverResult<StoredBackup> {
        // A second one in its place would be gone as soon as the first is back.
        if !order.known.is_empty() && !self.exists(order.tenant).await? {
            return Err(missing(order.tenant));
        }
        let tenancy = self.tenancy(order.tenant);
        let repository = self.repository(&tenancy, order.tenant).await?;
        let turn = tenancy.turn.clone().read_owned().await;
        let order = order.clone();
        on_a_thread(move || {
            let _turn = turn;
            Writing::new(&repository).store(&order, content, &progress)
        })
        .await
    }

    async fn fetch(
        &self,
        tenant: TenantId,
        id: &str,
        checksum: &str,
        progress: Arc<Progress>,
    ) -> DriverResult<Fetched> {
        let tenancy = self.tenancy(tenant);
        let repository = self.repository(&tenancy, tenant).await?;
        let turn = tenancy.turn.clone().read_owned().await;
        let (id, checksum) = (id.to_owned(), checksum.to_owned());
        let (told, bytes) = tokio::sync::oneshot::channel();
        let (pieces, arriving) = mpsc::channel(32);
        let failure = Failure::default();
        let noted = failure.clone();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let read = || -> DriverResult<()> {
                let _lock = repository.lock(false)?;
                let reading = Reading::open(&repository, &id, &checksum)?;
                let _ = told.send(reading.bytes);
                reading.read(&progress, |piece| pieces.blocking_send(Ok(piece)).is_ok())
            };
            if let Err(error) = read() {
                noted.set(error);
                let _ = pieces.blocking_send(Err(io::Error::other("the backup cannot be read to its end")));
            }
        });
        match bytes.await {
            Ok(bytes) => {
                let content = Arriving { pieces: arriving, piece: Arc::default(), at: 0, left: bytes };
                Ok(Fetched { bytes, content: Box::new(content), failure })
            }
            Err(_) => {
                // It was noted before this end of the channel was let go, or is about to be.
                let mut arriving = arriving;
                arriving.recv().await;
                let broken = || DriverError::new(Retry::Soon, "internal", "the work was broken off");
                Err(failure.take().unwrap_or_else(broken))
            }
        }
    }

    async fn forget(&self, tenant: TenantId, name: &str, stored: bool) -> DriverResult<()> {
        if !self.exists(tenant).await? {
            // To forget it now would leave its bytes there for good, once they are back.
            return if stored { Err(missing(tenant)) } else { Ok(()) };
        }
        let tenancy = self.tenancy(tenant);
        let repository = self.repository(&tenancy, tenant).await?;
        let name = name.to_owned();
        on_a_thread(move || repository.forget(&name)).await
    }

    async fn prune(&self, tenant: TenantId) -> DriverResult<u64> {
        if !self.exists(tenant).await? {
            return Ok(0);
        }
        let tenancy = self.tenancy(tenant);
        let repository = self.repository(&tenancy, tenant).await?;
        let turn = tenancy.turn.clone().try_write_owned().map_err(|_| busy())?;
        on_a_thread(move || {
            let _turn = turn;
            repository.prune()
        })
        .await
    }

    async fn list(&self, tenant: TenantId) -> DriverResult<Vec<String>> {
        if !self.exists(tenant).await? {
            return Ok(Vec::new());
        }
        let tenancy = self.tenancy(tenant);
        let repository = self.repository(&tenancy, tenant).await?;
        on_a_thread(move || {
            let found = repository.snapshots()?;
            Ok(found.into_iter().flat_map(|(_, snapshot)| snapshot.tags).collect())
        })
        .await
    }
}

/// Pieces of a disk, as they come, as one stream.
struct Arriving {
    pieces: mpsc::Receiver<io::Result<Arc<Vec<u8>>>>,
    piece: Arc<Vec<u8>>,
    at: usize,
    /// Of the disk. Where the stream ends before it, whoever made it has ended before it, too.
    left: u64,
}

impl AsyncRead for Arriving {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.at == self.piece.len() {
            match std::task::ready!(self.pieces.poll_recv(context)) {
                None if self.left > 0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                None => return Poll::Ready(Ok(())),
                Some(piece) => (self.piece, self.at) = (piece?, 0),
            }
        }
        let length = buffer.remaining().min(self.piece.len() - self.at);
        buffer.put_slice(&self.piece[self.at..self.at + length]);
        self.at += length;
        self.left = self.left.saturating_sub(length as u64);
        Poll::Ready(Ok(()))
    }
}
