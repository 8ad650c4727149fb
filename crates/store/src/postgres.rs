//! PostgreSQL: a pool of connections, and one that listens for what other replicas commit.

use std::sync::{Arc, Weak};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use futures_util::StreamExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::changes::{Changed, Changes};
use crate::value::Value;
use crate::{Error, Result};

/// The channel on which a commit names the tables it has changed.
const CHANNEL: &str = "paddock_changes";

#[derive(Clone)]
pub(crate) struct Postgres {
    pool: Pool,
}

impl Postgres {
    pub async fn open(url: &str, connections: usize, changes: &Arc<Changes>) -> Result<Self> {
        let mut config: Config = url.parse().map_err(|_| {
            Error::unavailable(
                "the database URL is not one of PostgreSQL (postgres://user:password@host/database)",
            )
        })?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        config.application_name("paddockd");
        // No answer must hold a connection for ever: neither a slow statement nor a peer that has vanished.
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(Duration::from_secs(30));
        let given = config.get_options().unwrap_or_default().to_owned();
        config
            .options(format!("-c statement_timeout=30s -c idle_in_transaction_session_timeout=60s {given}"));
        let tls = tls();
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(Duration::from_secs(5)))
            .build()
            .map_err(Error::unavailable)?;
        // Fails here, at start, when the database is not there.
        drop(pool.get().await.map_err(Error::unavailable)?);
        tokio::spawn(listen(config, tls, Arc::downgrade(changes)));
        Ok(Postgres { pool })
    }

    /// A connection that commits every statement by itself.
    pub async fn connection(&self) -> Result<Connection> {
        let client = self.pool.get().await.map_err(Error::unavailable)?;
        Ok(Connection { client: Some(client), begun: false, busy: false })
    }

    pub async fn begin(&self) -> Result<Connection> {
        let mut connection = self.connection().await?;
        connection.client().batch_execute("BEGIN").await?;
        connection.begun = true;
        Ok(connection)
    }
}

pub(crate) struct Connection {
    client: Option<Object>,
    begun: bool,
    /// A statement is under way.
    busy: bool,
}

impl Connection {
    fn client(&self) -> &Object {
        self.client.as_ref().expect("present until committed or dropped")
    }

    pub async fn query(&mut self, sql: &str, args: &[Value<'_>]) -> Result<Vec<tokio_postgres::Row>> {
        self.busy = true;
        let statement = self.client().prepare_cached(sql).await?;
        let rows = self.client().query(&statement, &parameters(args)).await?;
        self.busy = false;
        Ok(rows)
    }

    /// As [`Self::query`], but the statement is not kept prepared.
    pub async fn query_once(&mut self, sql: &str, args: &[Value<'_>]) -> Result<Vec<tokio_postgres::Row>> {
        self.busy = true;
        let rows = self.client().query(sql, &parameters(args)).await?;
        self.busy = false;
        Ok(rows)
    }

    pub async fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64> {
        if !self.begun {
            return Err(Error::unexpected("a change in a reading transaction"));
        }
        self.busy = true;
        let statement = self.client().prepare_cached(sql).await?;
        let touched = self.client().execute(&statement, &parameters(args)).await?;
        self.busy = false;
        Ok(touched)
    }

    pub async fn run_script(&self, script: &str) -> Result<()> {
        Ok(self.client().batch_execute(script).await?)
    }

    #[cfg(test)]
    pub async fn prepare(&self, sql: &str) -> Result<()> {
        Ok(self.client().prepare(sql).await.map(drop)?)
    }

    /// Commits, and tells the other replicas in the same round trip.
    pub async fn commit(mut self, changed: &[&'static str]) -> Result<()> {
        let script = if changed.is_empty() {
            "COMMIT".to_owned()
        } else {
            format!("NOTIFY {CHANNEL}, '{}'; COMMIT", changed.join(","))
        };
        self.client().batch_execute(&script).await?;
        self.begun = false;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.begun && !self.busy {
            return;
        }
        let Some(client) = self.client.take() else { return };
        if self.busy {
            // Given up in the middle, or broken: the next one would wait behind it. Closing it rolls back.
            return drop(Object::take(client));
        }
        // It goes back to the pool only after the rollback; without a runtime it is closed, which rolls back too.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if client.batch_execute("ROLLBACK").await.is_err() {
                    drop(Object::take(client));
                }
            });
        } else {
            drop(Object::take(client));
        }
    }
}

fn parameters<'a>(args: &'a [Value<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    args.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn tls() -> MakeRustlsConnect {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

/// Hears what other replicas commit, for as long as the store lives; after a lost connection anything may have changed.
async fn listen(config: Config, tls: MakeRustlsConnect, changes: Weak<Changes>) {
    while changes.strong_count() > 0 {
        if let Err(error) = listen_once(&config, tls.clone(), &changes).await {
            tracing::warn!(%error, "lost the database connection that hears of changes; trying again");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn listen_once(
    config: &Config,
    tls: MakeRustlsConnect,
    changes: &Weak<Changes>,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls).await?;
    let mut messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
    let listen = client.batch_execute("LISTEN paddock_changes");
    let hear = async {
        // `LISTEN` is answered through this very stream, so what was missed is announced by its first message or tick.
        let mut alive = tokio::time::interval(Duration::from_secs(5));
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notification(news))) => {
                        let Some(changes) = changes.upgrade() else { return Ok(()) };
                        changes.tell(Changed::Tables(news.payload().split(',').map(str::to_owned).collect()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                },
                _ = alive.tick() => if changes.strong_count() == 0 { return Ok(()) },
            }
        }
    };
    let announce = async {
        listen.await?;
        if let Some(changes) = changes.upgrade() {
            changes.tell(Changed::Anything);
        }
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    tokio::select! { ended = hear => ended, failed = announce => failed }
}
