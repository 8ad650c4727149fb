//! Configuration: one table of settings, read from a file, the environment and flags, in rising order.

pub mod issuers;
mod setting;
mod sources;

use std::net::SocketAddr;
use std::path::PathBuf;

use issuers::{Issuer, IssuerUrl};
pub use setting::{
    Addresses, DatabaseUrl, DeviceAddress, Folders, LogFormat, LogLevel, Origins, PublicUrl, ScoreWeights,
    Seconds, Value, Whole,
};
pub use sources::{InForce, Refused, Source, command, load, reference};

/// Declares the settings: the typed [`Config`], and the table from which flags, variables and the reference are made.
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $field:ident, $key:literal: $type:ty = $default:literal;)*) => {
        /// What is in force.
        #[derive(Debug, Clone)]
        pub struct Config {
            $($(#[doc = $help])+ pub $field: $type,)*
            /// Whose tokens are accepted, besides our own.
            pub issuers: Vec<Issuer>,
        }

        /// Every setting there is.
        pub const SETTINGS: &[Setting] = &[
            $(Setting {
                key: $key,
                help: concat!($($help),+),
                default: $default,
                allowed: <$type as Value>::allowed,
                check: |text| <$type as Value>::read(text).map(|value| value.show()),
            },)*
        ];

        impl Config {
            /// From texts that were checked before; `text` gives the one for a key.
            fn from_texts(text: impl Fn(&str) -> String) -> Result<Config, String> {
                Ok(Config { $($field: <$type as Value>::read(&text($key))?,)* issuers: Vec::new() })
            }
        }
    };
}

#[derive(Debug)]
pub struct Setting {
    pub key: &'static str,
    pub help: &'static str,
    pub default: &'static str,
    pub allowed: fn() -> String,
    /// The value as it may be shown (secrets masked), or what is wrong with it.
    pub check: fn(&str) -> Result<String, String>,
}

settings! {
    /// Folder that holds everything this machine keeps: the database, keys, disks.
    data, "data": PathBuf = "paddock-data";
    /// Address that serves everything.
    listen, "listen": SocketAddr = "127.0.0.1:8080";
    /// A second address that serves only /-/ (health, metrics, version), for a private network.
    operations_listen, "operations.listen": Option<SocketAddr> = "";
    /// PostgreSQL's URL; without one, SQLite in the data folder.
    database_url, "database.url": Option<DatabaseUrl> = "";
    /// How many connections to PostgreSQL at most.
    database_connections, "database.connections": Whole<1, 1000> = "16";
    /// File with the certificate chain (PEM); with it, everything is served by TLS.
    tls_certificate, "tls.certificate": Option<PathBuf> = "";
    /// File with the certificate's private key (PEM).
    tls_key, "tls.key": Option<PathBuf> = "";
    /// Web pages that may call the API from another address, separated by commas.
    cors_origins, "cors.origins": Origins = "";
    /// Addresses of proxies in front of this server, separated by commas; their X-Forwarded-For is believed.
    trusted_proxies, "proxies.trusted": Addresses = "";
    /// An OpenID issuer whose access tokens are accepted and where people sign in; for several see [[issuers]].
    sso_issuer, "sso.issuer": Option<IssuerUrl> = "";
    /// What that issuer's tokens must say in `aud`.
    sso_audience, "sso.audience": Option<String> = "";
    /// Our client there, for signing in with a browser; it is public, that is, it has no secret.
    sso_client_id, "sso.client_id": Option<String> = "";
    /// Address by which browsers and command lines reach this server; without it, what they write themselves.
    public_url, "public.url": Option<PublicUrl> = "";
    /// How long a browser stays signed in without being used.
    idle_session, "sign_in.idle_seconds": Seconds<60, 31_536_000> = "28800";
    /// How long a browser stays signed in at most.
    session, "sign_in.session_seconds": Seconds<60, 31_536_000> = "2592000";
    /// How long a command line stays signed in without being used.
    refresh_token, "sign_in.refresh_seconds": Seconds<60, 31_536_000> = "2592000";
    /// How long a key signs access tokens before the next one does.
    signing_key, "sign_in.key_seconds": Seconds<3600, 31_536_000> = "2592000";
    /// How log lines look; auto means human on a terminal and json elsewhere.
    log_format, "log.format": LogFormat = "auto";
    /// What is logged: error, warn, info, debug, trace, or a filter such as info,paddock_store=debug.
    log_level, "log.level": LogLevel = "info";
    /// Largest request body, in bytes.
    body_bytes, "limits.body_bytes": Whole<1024, 1_073_741_824> = "1048576";
    /// Requests a minute that one caller may send in the long run.
    requests_per_minute, "limits.requests_per_minute": Whole<1, 100_000_000> = "6000";
    /// Requests that one caller may send at once after a pause.
    burst, "limits.burst": Whole<1, 100_000_000> = "600";
    /// Costly requests a minute that one caller may send: new accounts, invitations and keys, searches of the audit.
    costly_per_minute, "limits.costly_per_minute": Whole<1, 100_000_000> = "60";
    /// Failed authentications a minute from one address; valid callers from it are unharmed.
    failed_authentications_per_minute, "limits.failed_authentications_per_minute": Whole<1, 1_000_000> = "20";
    /// How long a request may take.
    request_time, "limits.request_seconds": Seconds<1, 3600> = "30";
    /// How long a client may take to send a request's headers.
    header_time, "limits.header_seconds": Seconds<1, 600> = "10";
    /// How long a client may take to send a request's body.
    body_time, "limits.body_seconds": Seconds<1, 3600> = "20";
    /// How long a client may neither take an answer nor send the next of a disk image before it is cut off.
    stall_time, "limits.stall_seconds": Seconds<1, 3600> = "30";
    /// Streams (ADB, display, logs) that one caller may have open at once on one server.
    streams_per_caller, "limits.streams_per_caller": Whole<1, 1_000_000> = "20";
    /// Connections at once; more wait to be accepted.
    connections, "limits.connections": Whole<1, 1_000_000> = "10000";
    /// Folder with images that are brought in as platform snapshots and promoted roots: each *.profile.json in it.
    images, "devices.images": Option<PathBuf> = "";
    /// The program that runs devices.
    qemu, "devices.qemu": PathBuf = "qemu-system-x86_64";
    /// Devices and disks that exist in memory only, for tests and for trying the API at scale.
    simulated, "devices.simulated": bool = "false";
    /// The first device's loopback address, from 127.80.0.1 on; another server on the same machine needs others.
    first_address, "devices.first_address": DeviceAddress = "127.80.0.1";
    /// Address of whoever plays ADB, the display and the vehicle of simulated devices; without one, they say again what they are told.
    simulated_peer, "devices.simulated_peer": Option<SocketAddr> = "";
    /// Lines a second that each simulated device writes to its log, for tests and for load.
    simulated_log_rate, "devices.simulated_log_rate": Whole<0, 1_000_000> = "0";
    /// How long a device may take to come up.
    boot_deadline, "devices.boot_seconds": Seconds<1, 3600> = "120";
    /// How much of each emulator's log is kept, in bytes; the oldest goes first.
    logs_keep, "logs.keep_bytes": Whole<65_536, 1_099_511_627_776> = "16777216";
    /// How often a log without news says that it is still there.
    logs_heartbeat, "logs.heartbeat_seconds": Seconds<1, 3600> = "15";
    /// Emulators that one tenant may have, parked ones included.
    quota_emulators, "quotas.emulators": Whole<0, 10_000_000> = "100";
    /// Memory that all emulators of one tenant may have together, in bytes.
    quota_memory, "quotas.memory_bytes": Whole<0, 9_000_000_000_000_000> = "137438953472";
    /// What all disks and snapshots of one tenant may take in the pool together, in bytes; it is measured now and then.
    quota_disk, "quotas.disk_bytes": Whole<0, 9_000_000_000_000_000> = "1099511627776";
    /// How long a capture may take before it is given up.
    capture_deadline, "snapshots.capture_seconds": Seconds<1, 86_400> = "300";
    /// How long a device may be held still while it is captured.
    freeze, "snapshots.freeze_seconds": Seconds<1, 60> = "5";
    /// How many throw-away clones are booted at once to prove snapshots.
    verifications, "snapshots.verifications_at_once": Whole<1, 1000> = "1";
    /// A snapshot on more layers than this is not deployed before they are consolidated.
    hard_depth, "snapshots.hard_depth": Whole<1, 1000> = "8";
    /// Snapshots on more layers than this are consolidated in the background: some of their layers become one.
    soft_depth, "snapshots.soft_depth": Whole<2, 1000> = "4";
    /// How many are consolidated at once; 0 is none.
    consolidations, "consolidation.at_once": Whole<0, 100> = "1";
    /// How fast layers are read and written for that, in bytes a second.
    consolidation_rate, "consolidation.bytes_per_second": Whole<1024, 100_000_000_000> = "104857600";
    /// How long replaced layers stay afterwards, for devices that have just begun to open them.
    consolidation_grace, "consolidation.grace_seconds": Seconds<0, 86400> = "60";
    /// Folders on this machine from which disk images may be imported by their path, separated by commas.
    import_folders, "snapshots.import_folders": Folders = "";
    /// Largest disk image that somebody may send to be imported, in bytes.
    upload_bytes, "snapshots.upload_bytes": Whole<1, 9_000_000_000_000_000> = "68719476736";
    /// File with properties of vehicles, in the format that car makers have; they are added to the standard ones, or take their place.
    vehicle_properties, "vehicles.properties": Option<PathBuf> = "";
    /// Folder in which each tenant has a repository of backups, unless they are in S3; `backups` in the data folder where none is named.
    backups_folder, "backups.folder": Option<PathBuf> = "";
    /// Folder of the passwords of these repositories, a file each; `backup-keys` in the data folder where none is named. Keep a copy elsewhere: without them no backup can be read.
    backups_keys, "backups.keys": Option<PathBuf> = "";
    /// How many backups and restores run at once.
    backups_at_once, "backups.at_once": Whole<1, 64> = "2";
    /// Whether each promoted root of a tenant is backed up by itself.
    backups_roots, "backups.roots": bool = "false";
    /// Bucket of an S3-compatible store in which the repositories are, instead of in a folder.
    s3_bucket, "backups.s3_bucket": Option<String> = "";
    /// Address of the S3-compatible store; Amazon's where none is named.
    s3_endpoint, "backups.s3_endpoint": Option<String> = "";
    /// Region of the bucket.
    s3_region, "backups.s3_region": String = "us-east-1";
    /// Folder of the bucket below which the repositories are.
    s3_prefix, "backups.s3_prefix": Option<String> = "";
    /// Who we are to the S3-compatible store. Without it, the AWS_ variables of the environment decide.
    s3_access_key_id, "backups.s3_access_key_id": Option<String> = "";
    /// File that holds the secret of that access key, and nothing else.
    s3_secret_file, "backups.s3_secret_file": Option<PathBuf> = "";
    /// How often it is measured what disks take.
    measure_every, "pool.measure_seconds": Seconds<1, 86400> = "30";
    /// How often each stored layer is read as a whole and held against its digest; 0 is never.
    verify_every, "pool.verify_seconds": Seconds<0, 315_360_000> = "604800";
    /// How fast layers are read for that, in bytes a second.
    verify_rate, "pool.verify_bytes_per_second": Whole<1024, 100_000_000_000> = "20971520";
    /// From so many percent of the disk pool in use on, people are warned.
    pool_warn, "pool.warn_percent": Whole<1, 100> = "80";
    /// From so many percent of the disk pool in use on, nothing new is put into it; with 0, nothing at all.
    pool_critical, "pool.critical_percent": Whole<0, 100> = "95";
    /// How much each factor counts in a snapshot's retention score; what adds is brought to 100 points together, exclusive_bytes takes away.
    weights, "retention.weights": ScoreWeights = "recency=25,use_count=15,last_use=10,ref_class=10,trust=10,verified_boot=10,job_result=5,children=10,rebuild_cost=5,exclusive_bytes=10";
    /// How long to go on serving, not ready any more, before connections are closed: time for a load balancer to notice.
    shutdown_delay, "shutdown.delay_seconds": Seconds<0, 600> = "0";
    /// How long requests and streams may take to end after that.
    shutdown_grace, "shutdown.grace_seconds": Seconds<0, 3600> = "30";
    /// How long after the death of the replica that runs the loops another one takes over.
    lease, "loops.lease_seconds": Seconds<1, 600> = "15";
    /// A loop's run that takes longer is stuck, and the server is not ready.
    stuck_after, "loops.stuck_seconds": Seconds<1, 86400> = "300";
}

/// The id of the issuer that the settings `sso.…` describe.
const SSO: &str = "sso";

impl Default for Config {
    fn default() -> Self {
        let default = |key: &str| {
            SETTINGS.iter().find(|setting| setting.key == key).map_or("", |setting| setting.default)
        };
        Config::from_texts(|key| default(key).to_owned())
            .expect("every default is allowed; a test tries them")
    }
}

impl Config {
    /// What no single setting can say.
    fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            found.push("tls.certificate and tls.key belong together: set both or neither".to_owned());
        }
        if self.operations_listen == Some(self.listen) && self.listen.port() != 0 {
            found.push(format!(
                "operations.listen is {}, which listen serves already: choose another port",
                self.listen
            ));
        }
        match (&self.sso_issuer, &self.sso_audience) {
            (None, None) if self.sso_client_id.is_none() => {}
            (Some(url), Some(_)) => {
                if self.issuers.iter().any(|issuer| issuer.url == url.0 || issuer.id == SSO) {
                    found.push(format!(
                        "sso.issuer: [[issuers]] lists it, or one called {SSO}, already: leave one out"
                    ));
                }
            }
            _ => found.push("sso.issuer and sso.audience belong together: set both or neither".to_owned()),
        }
        found
    }

    /// Adds the one issuer that the settings `sso.…` describe.
    fn add_sso_issuer(&mut self) {
        if let (Some(url), Some(audience)) = (&self.sso_issuer, &self.sso_audience) {
            let clients = self.sso_client_id.iter().cloned().collect();
            let usual = Issuer::sso(SSO, &url.0, audience);
            self.issuers.push(Issuer { client_id: self.sso_client_id.clone(), clients, ..usual });
        }
    }
}
