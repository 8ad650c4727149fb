//! Accepts connections, speaks HTTP/1 and HTTP/2 on them, with or without TLS, and lets them end in peace.
//!
//! A connection stays on one thread for life. A request costs microseconds; handing it from thread to thread,
//! as a work-stealing scheduler does, would cost as much again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::config::Config;
use crate::http::Surface;
use crate::http::conventions::peer::Peer;
use crate::takeover::{self, Connection, Takeover};

/// That there is no place left is not told more often.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// How clients are kept from holding what they do not use.
#[derive(Clone)]
pub struct Settings {
    tls: Option<TlsAcceptor>,
    header_time: Duration,
    stall_time: Duration,
    connections: usize,
    grace: Duration,
}

impl Settings {
    pub fn from_config(config: &Config) -> anyhow::Result<Settings> {
        let tls = match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => Some(acceptor(certificate, key)?),
            _ => None,
        };
        Ok(Settings {
            tls,
            header_time: config.header_time.0,
            stall_time: config.stall_time.0,
            connections: config.connections.0 as usize,
            grace: config.shutdown_grace.0,
        })
    }
}

fn acceptor(certificate: &std::path::Path, key: &std::path::Path) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("tls.certificate: read {}", certificate.display()))?;
    let private =
        PrivateKeyDer::from_pem_file(key).with_context(|| format!("tls.key: read {}", key.display()))?;
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .context("tls.certificate and tls.key do not fit together")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The threads that connections live on, one a core; they end when the last handle is dropped.
pub struct Threads {
    runtimes: Vec<tokio::runtime::Handle>,
    next: AtomicUsize,
    end: CancellationToken,
}

impl Threads {
    pub fn start() -> std::io::Result<Threads> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let end = CancellationToken::new();
        let runtimes = (0..count).map(|number| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (handle, end) = (runtime.handle().clone(), end.clone());
            let thread = std::thread::Builder::new().name(format!("connections-{number}"));
            thread.spawn(move || runtime.block_on(end.cancelled_owned()))?;
            Ok(handle)
        });
        Ok(Threads { runtimes: runtimes.collect::<std::io::Result<_>>()?, next: AtomicUsize::new(0), end })
    }

    /// Each in turn: connections of a pool come together and would all meet the same idle thread.
    fn next(&self) -> &tokio::runtime::Handle {
        &self.runtimes[self.next.fetch_add(1, Ordering::Relaxed) % self.runtimes.len()]
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Serves until stopped; then finishes what is under way, but not for longer than the grace.
pub async fn serve(
    listener: TcpListener,
    surface: Surface,
    settings: Settings,
    threads: Arc<Threads>,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(settings.connections));
    let mut told: Option<Instant> = None;
    loop {
        // To whoever waits outside, a full server looks like one that hangs.
        if places.available_permits() == 0 && told.is_none_or(|at| at.elapsed() >= FULL_AGAIN) {
            told = Some(Instant::now());
            tracing::warn!(
                connections = settings.connections,
                "as many connections are open as limits.connections allows; others wait until one ends"
            );
        }
        let accepted = async {
            let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            std::io::Result::Ok((stream, peer, place))
        };
        tokio::select! {
            accepted = accepted => match accepted {
                Ok((stream, peer, place)) => {
                    // Leaves this thread's reactor; the other's takes it up.
                    let Ok(stream) = stream.into_std() else { continue };
                    let (surface, settings) = (surface.clone(), settings.clone());
                    threads.next().spawn(connection(stream, peer, place, surface, settings, graceful.watcher()));
                }
                // Out of file descriptors, most likely: the next ones may be luckier.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = stop.cancelled() => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(settings.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("some connections did not end in time and are cut off");
    }
}

async fn connection(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
    surface: Surface,
    settings: Settings,
    watcher: Watcher,
) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    // Answers are small and whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    if let Err(error) = notice_silence(&stream, settings.stall_time) {
        tracing::debug!(%error, %peer, "the system will not notice when a client falls silent");
    }
    let stream = Connection::new(stream, place);
    let Some(acceptor) = settings.tls.clone() else {
        let takeover = stream.takeover();
        return http(stream, Some(takeover), peer, surface, settings, watcher).await;
    };
    match tokio::time::timeout(settings.header_time, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => http(stream, None, peer, surface, settings, watcher).await,
        Ok(Err(error)) => tracing::debug!(%error, %peer, "no TLS handshake"),
        Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
    }
}

/// Has the system give a connection up whose client takes nothing or has vanished, also while there is nothing to send, and
/// however much room its own buffers have.
fn notice_silence(stream: &TcpStream, stall_time: Duration) -> rustix::io::Result<()> {
    let second = Duration::from_secs(1);
    sockopt::set_tcp_user_timeout(stream, u32::try_from(stall_time.as_millis()).unwrap_or(u32::MAX))?;
    sockopt::set_tcp_keepidle(stream, (stall_time / 3).max(second))?;
    sockopt::set_tcp_keepintvl(stream, (stall_time / 6).max(second))?;
    sockopt::set_socket_keepalive(stream, true)
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    takeover: Option<Takeover>,
    peer: SocketAddr,
    surface: Surface,
    settings: Settings,
    watcher: Watcher,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(settings.stall_time));
    let heard = Arc::new(AtomicBool::new(false));
    let hears = heard.clone();
    let offered = takeover.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        hears.store(true, Ordering::Relaxed);
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(Peer(peer));
        if let Some(takeover) = &offered
            && takeover::is_possible(&request)
        {
            request.extensions_mut().insert(takeover.clone());
        }
        surface.clone().oneshot(request)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_time)
        .max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .max_header_list_size(64 * 1024)
        .keep_alive_interval(Some(settings.stall_time))
        .keep_alive_timeout(settings.stall_time);
    let connection =
        builder.serve_connection_with_upgrades(TokioIo::new(Box::pin(stream)), service).into_owned();
    // The limit on headers begins with their first byte, and not before HTTP's version is known: this one begins at once.
    let silence = async {
        tokio::time::sleep(settings.header_time).await;
        if heard.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = watcher.watch(connection) => if let Err(error) = ended && !takeover.is_some_and(|takeover| takeover.is_granted()) {
            tracing::debug!(%error, %peer, "a connection ended early");
        },
        () = silence => tracing::debug!(%peer, "a connection without a request is closed"),
    }
}
