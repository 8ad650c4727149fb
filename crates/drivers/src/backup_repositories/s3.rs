//! Objects in an S3-compatible store.

use std::ops::Range;
use std::sync::Arc;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use tokio::runtime::Handle;

use super::objects::{Objects, missing};

/// Where it is, and who we are there.
#[derive(Clone)]
pub struct S3Settings {
    /// Without one, Amazon's of the region.
    pub endpoint: Option<String>,
    pub bucket: String,
    pub region: String,
    /// Below which folder of the bucket.
    pub prefix: String,
    /// Without any, what the environment of the machine gives.
    pub access_key: Option<(String, String)>,
}

impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let S3Settings { endpoint, bucket, region, prefix, access_key } = self;
        let access_key = access_key.as_ref().map(|_| "***");
        let shown = (endpoint, bucket, region, prefix, access_key);
        f.debug_tuple("S3Settings").field(&shown).finish()
    }
}

/// The store of all tenants.
pub fn open(settings: &S3Settings) -> DriverResult<Arc<AmazonS3>> {
    let builder =
        if settings.access_key.is_some() { AmazonS3Builder::new() } else { AmazonS3Builder::from_env() };
    let mut builder = builder
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_virtual_hosted_style_request(false);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    if let Some((id, secret)) = &settings.access_key {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
    }
    let opened = builder.build().map_err(|error| {
        let message = "the store of backups cannot be used as it is configured";
        DriverError::new(Retry::Later, "store_misconfigured", message).with_cause(error)
    });
    opened.map(Arc::new)
}

/// One repository's part of it.
pub struct S3Objects {
    pub store: Arc<AmazonS3>,
    /// To wait with, on threads that may.
    pub runtime: Handle,
    pub bucket: String,
    pub endpoint: Option<String>,
    pub prefix: String,
}

impl S3Objects {
    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    fn wait<T>(&self, name: &str, act: impl Future<Output = object_store::Result<T>>) -> DriverResult<T> {
        self.runtime.block_on(act).map_err(|error| failed(name, error))
    }
}

fn failed(name: &str, error: object_store::Error) -> DriverError {
    match error {
        object_store::Error::NotFound { .. } => missing(name).with_cause(error),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            let message = "the store of backups does not let us in; look at its access key";
            DriverError::new(Retry::Later, "store_denied", message).with_cause(error)
        }
        _ => {
            let message = format!("the store of backups does not give or take {name}");
            DriverError::new(Retry::Soon, "store_unreachable", message).with_cause(error)
        }
    }
}

impl Objects for S3Objects {
    fn list(&self, folder: &str) -> DriverResult<Vec<(String, u64)>> {
        let prefix = self.path(folder);
        let within = format!("{}/", self.path(""));
        let found = async {
            use futures_util::TryStreamExt;
            self.store.list(Some(&prefix)).try_collect::<Vec<_>>().await
        };
        let found = self.wait(folder, found)?;
        let name = |path: &Path| path.as_ref().strip_prefix(within.as_str()).map(str::to_owned);
        let mut names: Vec<(String, u64)> =
            found.iter().filter_map(|object| Some((name(&object.location)?, object.size))).collect();
        names.sort();
        Ok(names)
    }

    fn get(&self, name: &str) -> DriverResult<Vec<u8>> {
        let path = self.path(name);
        Ok(self.wait(name, async { self.store.get(&path).await?.bytes().await })?.to_vec())
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> DriverResult<Vec<u8>> {
        let path = self.path(name);
        let length = range.end - range.start;
        let bytes = self.wait(name, self.store.get_range(&path, range))?;
        if bytes.len() as u64 != length {
            let message = format!("{name} has been cut off");
            return Err(DriverError::new(Retry::Never, "object_damaged", message));
        }
        Ok(bytes.to_vec())
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> DriverResult<()> {
        let path = self.path(name);
        self.wait(name, self.store.put(&path, PutPayload::from(bytes))).map(drop)
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> DriverResult<bool> {
        let path = self.path(name);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.runtime.block_on(self.store.put_opts(&path, PutPayload::from(bytes), options)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(false)
            }
            Err(error) => Err(failed(name, error)),
        }
    }

    fn remove(&self, name: &str) -> DriverResult<()> {
        let path = self.path(name);
        match self.wait(name, self.store.delete(&path)) {
            Err(error) if error.code == "object_missing" => Ok(()),
            done => done,
        }
    }

    fn location(&self) -> String {
        // As restic wants to be told.
        let endpoint = self.endpoint.as_deref().unwrap_or("https://s3.amazonaws.com");
        format!("s3:{}/{}/{}", endpoint.trim_end_matches('/'), self.bucket, self.prefix)
    }
}
