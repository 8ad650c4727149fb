//! Puts the parts together: configuration to drivers, engine, router, listeners, loops; and takes them apart again.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use paddock_drivers::backup_repositories::{
    RepositoryPlace, RepositorySettings, ResticRepositories, S3Settings,
};
use paddock_drivers::clock::SystemClock;
use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::disk_pools::simulated::{SimulatedPool, SimulatedPoolSettings};
use paddock_drivers::emulator_hosts::qemu::{self, QemuHost, QemuSettings};
use paddock_drivers::emulator_hosts::simulated::{SimulatedHost, SimulatedHostSettings};
use paddock_drivers::journals::{FolderJournals, JournalSettings};
use paddock_drivers::random::OsRandom;
use paddock_engine::devices::{self, Devices};
use paddock_engine::reconcile::{self, Loop, Runner};
use paddock_engine::vault::Vault;
use paddock_engine::{DatabaseLocation, Engine, streams, users};
use paddock_model::emulators::EmulatorId;
use paddock_model::lifetimes::Lifetimes;
use paddock_model::ports::{Clock, Random};
use paddock_model::templates::TemplateId;
use paddock_vehicle::{Catalogue, Garage};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth::Credentials;
use crate::auth::access_token::AccessTokens;
use crate::auth::issuers::Issuers;
use crate::config::Config;
use crate::grpc;
use crate::http::conventions::Limits;
use crate::http::conventions::cross_origin::CrossOrigin;
use crate::http::conventions::peer::Proxies;
use crate::http::conventions::rates::Rates;
use crate::http::conventions::schemas::Schemas;
use crate::http::health::Health;
use crate::http::logs::Logs;
use crate::http::meta::Build;
use crate::http::sign_in::SignIn;
use crate::http::{self, App, Parts};
use crate::listener::{self, Threads};

const DATABASE_FILE: &str = "paddock.db";
const VEHICLES_FOLDER: &str = "vehicles";
const PASSWORD_FILE: &str = "admin-password";
const LOCK_FILE: &str = "paddockd.lock";

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    /// The first admin's password, if this start has made the account.
    pub first_password: Option<String>,
    pub engine: Engine,
    draining: CancellationToken,
    stop: CancellationToken,
    delay: Duration,
    grace: Duration,
    listeners: JoinSet<()>,
    /// Streams live on them when no listener knows of their connections any more.
    threads: Arc<Threads>,
    runner: Runner,
    chores: JoinSet<()>,
    /// Held for as long as the process uses the data folder.
    _lock: File,
}

/// What the outside of the process gives: replaced in tests.
pub struct World {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub loops: &'static [Loop],
    pub build: Build,
    /// What devices run on where they are simulated and somebody else wants to have a hand in it.
    pub simulation: Option<Simulation>,
}

/// A host and a pool that exist in memory only.
#[derive(Clone)]
pub struct Simulation {
    pub host: SimulatedHost,
    pub pool: Arc<SimulatedPool>,
}

impl Simulation {
    /// Must be called within a runtime.
    pub fn new(clock: Arc<dyn Clock>, peer: Option<SocketAddr>, log_rate: u64) -> Self {
        let host = SimulatedHostSettings { clock, peer, log_rate, ..SimulatedHostSettings::default() };
        let pool = SimulatedPool::new(SimulatedPoolSettings::default());
        Simulation { host: SimulatedHost::new(host), pool: Arc::new(pool) }
    }
}

impl World {
    pub fn real(build: Build) -> Self {
        World {
            simulation: None,
            clock: Arc::new(SystemClock::default()),
            random: Arc::new(OsRandom::default()),
            loops: reconcile::LOOPS,
            build,
        }
    }
}

/// Joins the database of a server that has been started before, and changes nothing about it.
pub async fn join(config: &Config, world: &World) -> anyhow::Result<Engine> {
    if config.database_url.is_none() && !config.data.join(DATABASE_FILE).exists() {
        bail!(
            "there is no database in {}; is --data right? A first start of paddockd makes one",
            config.data.display()
        );
    }
    Ok(Engine::join(&location(config)?, world.clock.clone(), world.random.clone()).await?)
}

/// The disks of a server that may be at work, to look at.
pub fn pool(config: &Config) -> anyhow::Result<Qcow2Pool> {
    Ok(Qcow2Pool::join("local", &config.data.join("disks"))?)
}

/// The devices of a server that may be at work, by what they leave where they run.
pub fn device_traces(config: &Config) -> anyhow::Result<Vec<EmulatorId>> {
    Ok(qemu::traces(&config.data.join("devices"))?)
}

/// The memory that lies where devices of a server run that may be at work.
pub fn template_traces(config: &Config) -> anyhow::Result<Vec<TemplateId>> {
    let found = qemu::template_traces(&config.data.join("devices"))?;
    Ok(found.into_iter().map(|template| template.id).collect())
}

/// The cars of a server that may be at work.
pub fn car_traces(config: &Config) -> anyhow::Result<Vec<EmulatorId>> {
    let folder = config.data.join(VEHICLES_FOLDER);
    // Where no server has been, there are none.
    if !folder.exists() {
        return Ok(Vec::new());
    }
    Ok(paddock_vehicle::car_traces(&folder)?)
}

fn location(config: &Config) -> anyhow::Result<DatabaseLocation> {
    if let Some(url) = &config.database_url {
        let connections = config.database_connections.0 as usize;
        return Ok(DatabaseLocation::Postgres { url: url.0.clone(), connections });
    }
    // Made here and not by SQLite, for its owner alone; SQLite gives its other files the same mode.
    let path = config.data.join(DATABASE_FILE);
    let made = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    made.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(DatabaseLocation::Sqlite(path))
}

/// What devices run on: QEMU and a folder of disks, unless they are to be simulated.
fn devices(config: &Config, world: &World, garage: Arc<Garage>) -> anyhow::Result<Devices> {
    let settings = devices::Settings {
        images: config.images.as_deref().map(profiles).transpose()?.unwrap_or_default(),
        boot_deadline: config.boot_deadline.0,
        capture_deadline: config.capture_deadline.0,
        freeze: config.freeze.0,
        verifications_at_once: config.verifications.0 as i64,
        hard_depth: config.hard_depth.0 as i64,
        soft_depth: config.soft_depth.0 as i64,
        consolidations_at_once: config.consolidations.0 as usize,
        consolidate_bytes_per_second: config.consolidation_rate.0,
        consolidation_grace: config.consolidation_grace.0,
        first_slot: config.first_address.slot,
        quota_emulators: config.quota_emulators.0 as i64,
        quota_memory_bytes: config.quota_memory.0 as i64,
        quota_disk_bytes: config.quota_disk.0 as i64,
        back_up_roots: config.backups_roots,
        measure_every: config.measure_every.0,
        verify_every: Some(config.verify_every.0).filter(|every| !every.is_zero()),
        verify_bytes_per_second: config.verify_rate.0,
        warn_percent: config.pool_warn.0 as i64,
        critical_percent: config.pool_critical.0 as i64,
        import_folders: config.import_folders.0.clone(),
        upload_bytes: config.upload_bytes.0,
        weights: config.weights.0,
        streams_per_caller: config.streams_per_caller.0 as usize,
    };
    let journals = JournalSettings {
        keep_bytes: config.logs_keep.0,
        ..JournalSettings::in_folder(config.data.join("logs"))
    };
    let journals = Arc::new(FolderJournals::open(journals)?);
    if config.simulated {
        let simulation = world.simulation.clone();
        let made =
            || Simulation::new(world.clock.clone(), config.simulated_peer, config.simulated_log_rate.0);
        let Simulation { host, pool } = simulation.unwrap_or_else(made);
        let devices = Devices::new(Arc::new(host), pool, journals, settings);
        return Ok(devices.with_garage(garage).with_vault(vault(config)?));
    }
    let host = QemuSettings {
        qemu_binary: config.qemu.clone(),
        connector: this_program(),
        clock: world.clock.clone(),
        ..QemuSettings::in_folder(config.data.join("devices"))
    };
    let host = Arc::new(QemuHost::open(host)?);
    let pool = Arc::new(Qcow2Pool::open("local", &config.data.join("disks"))?);
    Ok(Devices::new(host, pool, journals, settings).with_garage(garage).with_vault(vault(config)?))
}

/// The cars of automotive devices, with the properties that their maker has given them.
fn garage(config: &Config, world: &World) -> anyhow::Result<Arc<Garage>> {
    let catalogue = match &config.vehicle_properties {
        None => Catalogue::standard(),
        Some(file) => {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}; is vehicles.properties right?", file.display()))?;
            let read = Catalogue::with(&text);
            read.with_context(|| format!("vehicles.properties: {} is of no use", file.display()))?
        }
    };
    Ok(Garage::open(&config.data.join(VEHICLES_FOLDER), catalogue, world.clock.clone())?)
}

/// Where this program lies; after an upgrade, where the new one does.
fn this_program() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("paddockd"));
    match program.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(replaced) => PathBuf::from(replaced),
        None => program,
    }
}

/// Where backups are kept; nothing of it is looked at before it is needed.
fn vault(config: &Config) -> anyhow::Result<Vault> {
    Ok(Vault::new(Arc::new(backup_repositories(config)?), config.backups_at_once.0 as usize))
}

/// The repositories of a server that may be at work.
pub fn backup_repositories(config: &Config) -> anyhow::Result<ResticRepositories> {
    Ok(ResticRepositories::new(repositories(config)?)?)
}

fn repositories(config: &Config) -> anyhow::Result<RepositorySettings> {
    let within =
        |named: &Option<PathBuf>, name: &str| named.clone().unwrap_or_else(|| config.data.join(name));
    let place = match &config.s3_bucket {
        None => RepositoryPlace::Folder(within(&config.backups_folder, "backups")),
        Some(bucket) => RepositoryPlace::S3(S3Settings {
            endpoint: config.s3_endpoint.clone(),
            bucket: bucket.clone(),
            region: config.s3_region.clone(),
            prefix: config.s3_prefix.clone().unwrap_or_default(),
            access_key: access_key(config)?,
        }),
    };
    Ok(RepositorySettings { place, keys: within(&config.backups_keys, "backup-keys") })
}

fn access_key(config: &Config) -> anyhow::Result<Option<(String, String)>> {
    match (&config.s3_access_key_id, &config.s3_secret_file) {
        (None, None) => Ok(None),
        (Some(id), Some(file)) => {
            let secret = fs::read_to_string(file).with_context(|| {
                format!("cannot read {}; is backups.s3_secret_file right?", file.display())
            })?;
            Ok(Some((id.clone(), secret.trim().to_owned())))
        }
        _ => bail!("backups.s3_access_key_id and backups.s3_secret_file go together; name both, or neither"),
    }
}

/// The profiles of a folder of images, in the order of their names.
fn profiles(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the images in {}; is devices.images right?", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path.to_string_lossy().ends_with(".profile.json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn lifetimes(config: &Config) -> Lifetimes {
    Lifetimes {
        idle_session: config.idle_session.0,
        session: config.session.0,
        refresh_token: config.refresh_token.0,
        signing_key: config.signing_key.0,
    }
}

/// Starts everything; returns when requests are served.
pub async fn start(config: &Config, world: World) -> anyhow::Result<Server> {
    let settings = listener::Settings::from_config(config)?;
    make_folder(&config.data)?;
    let lock = lock(&config.data)?;
    // Before anything is made: who cannot listen leaves nothing behind.
    let main = bind(config.listen).await?;
    let operations = match config.operations_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let metrics = metrics()?;
    let garage = garage(config, &world)?;
    let devices = Arc::new(devices(config, &world, garage.clone())?);
    let engine = Engine::open(&location(config)?, world.clock.clone(), world.random.clone(), Some(devices))
        .await?
        .with_lifetimes(lifetimes(config));
    let file = config.data.join(PASSWORD_FILE);
    let first_password = users::ensure_first_admin(&engine, |password| keep_secret(&file, password)).await?;

    let loops = reconcile::Settings { lease: config.lease.0, stuck_after: config.stuck_after.0 };
    let runner = Runner::start(&engine, world.loops, loops);
    let draining = CancellationToken::new();
    let issuers = Arc::new(Issuers::new(&engine, &config.issuers)?);
    let access_tokens = AccessTokens::load(&engine).await?;
    let document = http::document(config);
    let app = App::new(Parts {
        engine: engine.clone(),
        credentials: Credentials::new(engine.clone(), access_tokens, issuers.clone()),
        limits: Limits {
            body_bytes: config.body_bytes.0 as usize,
            body_time: config.body_time.0,
            request_time: config.request_time.0,
            stall_time: config.stall_time.0,
            tls: config.tls_certificate.is_some(),
        },
        logs: Logs { heartbeat: config.logs_heartbeat.0 },
        cross_origin: CrossOrigin(config.cors_origins.0.clone()),
        proxies: Proxies(config.trusted_proxies.0.clone()),
        rates: Rates::new(
            config.requests_per_minute.0,
            config.burst.0,
            config.costly_per_minute.0,
            config.failed_authentications_per_minute.0,
        ),
        schemas: Schemas::new(document.value["components"].clone()),
        document,
        health: Health::new(engine.clone(), runner.status(), issuers.clone(), draining.clone()),
        metrics,
        sign_in: SignIn::new(
            config.public_url.clone().map(|url| url.0),
            config.session.0,
            issuers.for_browsers().cloned(),
        ),
        build: world.build,
        garage,
    });

    let stop = CancellationToken::new();
    let threads = Arc::new(Threads::start()?);
    let mut listeners = JoinSet::new();
    let address = main.local_addr()?;
    listeners.spawn(listener::serve(
        main,
        http::everything(&app, grpc::routes(&app).await?),
        settings.clone(),
        threads.clone(),
        stop.clone(),
    ));
    if let Some(operations) = operations {
        listeners.spawn(listener::serve(
            operations,
            http::operations(&app),
            settings,
            threads.clone(),
            stop.clone(),
        ));
    }
    let mut chores = JoinSet::new();
    chores.spawn(tidy(app));
    issuers.follow(&mut chores);
    Ok(Server {
        address,
        first_password,
        engine,
        draining,
        stop,
        delay: config.shutdown_delay.0,
        grace: config.shutdown_grace.0,
        listeners,
        threads,
        runner,
        chores,
        _lock: lock,
    })
}

impl Server {
    /// Says that it is not ready any more, finishes what is under way, then stops the loops.
    pub async fn stop(mut self) {
        self.draining.cancel();
        tokio::time::sleep(self.delay).await;
        self.stop.cancel();
        let listeners = async { while self.listeners.join_next().await.is_some() {} };
        tokio::join!(streams::close(&self.engine, self.grace), listeners);
        drop(self.threads);
        self.chores.shutdown().await;
        self.runner.stop(self.grace).await;
    }
}

/// Keeps memory in bounds: forgets quiet callers, and folds the samples that wait for a scrape.
async fn tidy(app: App) {
    let mut tick = tokio::time::interval(Duration::from_secs(5));
    loop {
        tick.tick().await;
        app.metrics.run_upkeep();
        app.rates.forget_idle();
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another address with --listen"))
}

/// A folder that we make is for its owner alone; one that is there keeps its mode, and our files are closed anyway.
fn make_folder(data: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.with_context(|| {
        format!("cannot make the data folder {}; choose another with --data", data.display())
    })
}

/// One server a data folder: two would each believe that the devices are theirs.
fn lock(data: &Path) -> anyhow::Result<File> {
    let path = data.join(LOCK_FILE);
    let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = opened.with_context(|| format!("cannot write to the data folder {}", data.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another paddockd uses the data folder {}; stop it, or choose another folder with --data",
                data.display()
            )
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Writes a file that survives a power cut once this returns, for its owner alone.
fn keep_secret(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// One recorder a process, however many servers a test starts in it.
fn metrics() -> anyhow::Result<PrometheusHandle> {
    static RECORDER: std::sync::Mutex<Option<PrometheusHandle>> = std::sync::Mutex::new(None);
    let mut recorder = RECORDER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(handle) = &*recorder {
        return Ok(handle.clone());
    }
    const SECONDS: &[f64] =
        &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
    let handle = PrometheusBuilder::new().set_buckets(SECONDS)?.install_recorder()?;
    describe();
    *recorder = Some(handle.clone());
    Ok(handle)
}

fn describe() {
    metrics::describe_histogram!(
        "paddock_http_request_duration_seconds",
        "How long requests took, by route template."
    );
    metrics::describe_histogram!(
        "paddock_grpc_answer_duration_seconds",
        "How long gRPC calls took until they began to be answered."
    );
    metrics::describe_counter!("paddock_grpc_refusals_total", "gRPC calls that were refused, by code.");
    metrics::describe_histogram!("paddock_loop_run_duration_seconds", "How long runs of a loop took.");
    metrics::describe_counter!(
        "paddock_retention_released_total",
        "Snapshots that retention let go, by reason."
    );
    metrics::describe_counter!("paddock_loop_runs_total", "Runs of a loop, by outcome.");
    metrics::describe_gauge!("paddock_loop_last_run_timestamp_seconds", "When a loop last ended a run.");
    metrics::describe_gauge!("paddock_loop_stuck", "1 if a loop's run takes too long.");
    metrics::describe_gauge!("paddock_leader", "1 if this replica runs the loops.");
    metrics::describe_counter!("paddock_store_commits_total", "Commits that waited for the disk (SQLite).");
    metrics::describe_counter!(
        "paddock_store_transactions_total",
        "Transactions that were made durable by paddock_store_commits_total commits."
    );
    metrics::describe_gauge!("paddock_pool_capacity_bytes", "How much a disk pool holds.");
    metrics::describe_gauge!("paddock_pool_used_bytes", "How much of a disk pool its own files take.");
    metrics::describe_gauge!("paddock_pool_free_bytes", "How much room a disk pool has left.");
    metrics::describe_gauge!("paddock_pool_reserved_bytes", "Room that consolidation will need.");
    metrics::describe_gauge!(
        "paddock_pool_pressure_percent",
        "How much of a disk pool is taken, by whomever."
    );
    metrics::describe_gauge!(
        "paddock_pool_full_in_seconds",
        "Time until a disk pool is full at the rate of the last hour; infinite while it does not fill up."
    );
    metrics::describe_gauge!(
        "paddock_layers_bytes",
        "What stored layers hold: virtual (as devices see them), allocated (in the pool), exclusive and shared."
    );
    metrics::describe_gauge!("paddock_layers_deepest", "Layers in the longest lineage.");
    metrics::describe_gauge!(
        "paddock_layers_too_deep",
        "Layers with a longer lineage than a limit, soft or hard."
    );
    metrics::describe_gauge!("paddock_consolidations_under_way", "Lineages that are being consolidated.");
    metrics::describe_counter!(
        "paddock_consolidations_total",
        "Lineages that were consolidated or given up, by outcome."
    );
    metrics::describe_counter!(
        "paddock_consolidation_bytes_total",
        "Bytes that were written to consolidate lineages."
    );
    metrics::describe_gauge!("paddock_layers_quarantined", "Layers that are not what was recorded of them.");
    metrics::describe_gauge!("paddock_disks_bytes", "What the disks of devices take in the pool.");
    metrics::describe_gauge!("paddock_streams_open", "Streams that are open, by channel.");
    metrics::describe_counter!(
        "paddock_streams_ended_total",
        "Streams that had to end, by channel and reason."
    );
    metrics::describe_gauge!("paddock_build_info", "1; the labels say which build this is.");
}
