//! One page of text for whoever collects figures: `GET /metrics`, as Prometheus asks for it.
//!
//! It says nothing but counters, so it asks for no token; pages of other origins cannot read it, since no answer allows them to.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use linerate_engine::Stop;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at one time; those beyond are closed at once.
const CONNECTIONS: usize = 8;
/// Headers take no longer, and neither does a connection on which nothing is asked for.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// A connection lasts no longer: a scraper opens another.
const CONNECTION_LIMIT: Duration = Duration::from_secs(300);
/// How often it is looked whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// The text format of Prometheus, version 0.0.4.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Answers with what `page` says until stopping is requested, by a listener that does not block.
///
/// # Errors
/// If sockets cannot be waited for.
pub fn scrape(
    listener: std::net::TcpListener,
    stop: &Stop,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> std::io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(2).build()?;
    let page: Page = Arc::new(page);
    let result = runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        while !stop.is_requested() {
            let Ok(accepted) = tokio::time::timeout(LOOK, listener.accept()).await else { continue };
            // Too many files are open, say: others may close some.
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let page = Arc::clone(&page);
            tokio::spawn(async move {
                let _ = tokio::time::timeout(CONNECTION_LIMIT, connection(stream, page)).await;
                drop(permit);
            });
        }
        Ok(())
    });
    runtime.shutdown_background();
    result
}

async fn connection(stream: TcpStream, page: Page) {
    let service = service_fn(move |request| {
        let page = Arc::clone(&page);
        async move { Ok::<_, Infallible>(respond(&request, page).await) }
    });
    // Whoever breaks off has no answer.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: &Request<Incoming>, page: Page) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        _ if !is_read => response(StatusCode::METHOD_NOT_ALLOWED, "it is only read: GET /metrics\n".to_owned()),
        // Runs answer within a tenth of a second, and other connections are not to wait for that.
        "/metrics" => match tokio::task::spawn_blocking(move || page()).await {
            Ok(text) => response(StatusCode::OK, text),
            Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, "it went wrong here: a bug\n".to_owned()),
        },
        _ => response(StatusCode::NOT_FOUND, "figures are at /metrics\n".to_owned()),
    }
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
