//! Server for collectors and viewers: `GET /metrics` in the Prometheus format, and further pages of a run.
//!
//! An address only exposes counters, so it requires no token. Pages of other origins cannot read them: answers do not
//! allow it, and requests whose `Host` names another host, as after DNS rebinding, are rejected. A path is a socket
//! whose file permissions control access.

use crate::guard::{Guard, Token};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use linerate_engine::Stop;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// Maximum number of connections; further ones are closed at once.
const CONNECTIONS: usize = 8;
/// Timeout of request headers, and of idle connections.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Maximum duration of a connection: scrapers reconnect.
const CONNECTION_LIMIT: Duration = Duration::from_secs(300);
/// Interval of checks for the stop request.
const LOOK: Duration = Duration::from_millis(50);
/// Content type of the Prometheus text format, version 0.0.4.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Content type of JSON.
const DOCUMENT: &str = "application/json";

/// Non-blocking listener.
pub enum ScrapeListener {
    /// TCP address, reachable by anyone.
    Address(std::net::TcpListener),
    /// Unix socket, for users who may write to its file.
    Path(std::os::unix::net::UnixListener),
}

/// Answer to a request.
pub enum Reply {
    /// Prometheus text.
    Figures(String),
    /// JSON document.
    Document(String),
    /// Error in the request.
    Wrong(String),
    /// Not found, with a hint at another path.
    Elsewhere(&'static str),
}

/// Answers a path with its query string.
type Pages = Arc<dyn Fn(&str, &str) -> Reply + Send + Sync>;

/// Serves `pages` until stopping is requested.
///
/// # Errors
/// Sockets cannot be polled.
pub fn scrape(
    door: ScrapeListener,
    stop: &Stop,
    pages: impl Fn(&str, &str) -> Reply + Send + Sync + 'static,
) -> std::io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(2).build()?;
    let pages: Pages = Arc::new(pages);
    let result = runtime.block_on(async {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        match door {
            ScrapeListener::Address(listener) => {
                let address = Some(listener.local_addr()?);
                let listener = TcpListener::from_std(listener)?;
                while !stop.is_requested() {
                    let accepted = tokio::time::timeout(LOOK, listener.accept()).await;
                    welcome(accepted.map(|accepted| accepted.map(|(stream, _)| stream)), address, &room, &pages).await;
                }
            }
            ScrapeListener::Path(listener) => {
                let listener = UnixListener::from_std(listener)?;
                while !stop.is_requested() {
                    let accepted = tokio::time::timeout(LOOK, listener.accept()).await;
                    welcome(accepted.map(|accepted| accepted.map(|(stream, _)| stream)), None, &room, &pages).await;
                }
            }
        }
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Serves an accepted connection in its own task, within the limit.
async fn welcome<S, E>(
    accepted: Result<std::io::Result<S>, E>,
    address: Option<SocketAddr>,
    room: &Arc<Semaphore>,
    pages: &Pages,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(accepted) = accepted else { return };
    // For example too many open files: others may be closed.
    let Ok(stream) = accepted else { return tokio::time::sleep(LOOK).await };
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else { return };
    let pages = Arc::clone(pages);
    tokio::spawn(async move {
        let _ = tokio::time::timeout(CONNECTION_LIMIT, connection(stream, address, pages)).await;
        drop(permit);
    });
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, address: Option<SocketAddr>, pages: Pages) {
    let service = service_fn(move |request| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(respond(&request, address, pages).await) }
    });
    // Errors end the connection.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Rejects requests for another host or from a page of another origin. Collectors use the host name with or without
/// a domain.
fn check(headers: &HeaderMap, address: SocketAddr) -> Result<(), &'static str> {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let asked = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let asked = asked.split(':').next().unwrap_or_default();
    let is_own =
        !own.trim().is_empty() && asked.split('.').next().is_some_and(|name| name.eq_ignore_ascii_case(own.trim()));
    let names = is_own.then(|| asked.to_owned()).into_iter().collect();
    Guard::new(Token::None, address, names).check_host(headers).map_err(|(_, what)| what)
}

async fn respond(request: &Request<Incoming>, address: Option<SocketAddr>, pages: Pages) -> Response<Full<Bytes>> {
    if let Some(Err(_)) = address.map(|address| check(request.headers(), address)) {
        let text = "403: Host header names another host; use the address or host name\n";
        return response(StatusCode::FORBIDDEN, KIND, text.to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return response(StatusCode::METHOD_NOT_ALLOWED, KIND, "method not allowed; use GET /metrics\n".to_owned());
    }
    let [path, query] = [request.uri().path(), request.uri().query().unwrap_or_default()].map(str::to_owned);
    // Runs answer within a tenth of a second, which must not block other connections.
    match tokio::task::spawn_blocking(move || pages(&path, &query)).await {
        Ok(Reply::Figures(text)) => response(StatusCode::OK, KIND, text),
        Ok(Reply::Document(text)) => response(StatusCode::OK, DOCUMENT, text),
        Ok(Reply::Wrong(text)) => response(StatusCode::BAD_REQUEST, KIND, text),
        Ok(Reply::Elsewhere(text)) => response(StatusCode::NOT_FOUND, KIND, text.to_owned()),
        Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, KIND, "internal error (a bug)\n".to_owned()),
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_another_host_are_rejected() {
        let may = |address: &str, headers: &[(&'static str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (hyper::header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            });
            check(&headers.collect(), address.parse().unwrap()).is_ok()
        };
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let own = own.trim();
        for (address, host) in [
            ("127.0.0.1:9464", "127.0.0.1:9464"),
            ("127.0.0.1:9464", "localhost:9464"),
            ("[::1]:9464", "[::1]:9464"),
            ("10.0.0.5:9464", "10.0.0.5:9464"),
            ("0.0.0.0:9464", "10.0.0.5:9464"),
            ("0.0.0.0:9464", own),
            ("10.0.0.5:9464", &format!("{own}.lab.example:9464")),
        ] {
            assert!(may(address, &[("host", host)]), "{address} {host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:9464", ""] {
            assert!(!may("127.0.0.1:9464", &[("host", host)]) && !may("0.0.0.0:9464", &[("host", host)]), "{host}");
        }
        assert!(!may("127.0.0.1:9464", &[]));
        let host = ("host", "127.0.0.1:9464");
        assert!(!may("127.0.0.1:9464", &[host, ("origin", "http://evil.example")]));
        assert!(!may("127.0.0.1:9464", &[host, host]));
    }
}
