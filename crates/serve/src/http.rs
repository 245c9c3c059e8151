//! HTTP server: connections, limits of time and size, authorisation.

use crate::api::{Answer, EVENTS, answer};
use crate::connections::{Connections, TimedStream, client};
use crate::guard::Guard;
use crate::native_api::{Page, figures};
use crate::page;
use crate::secure::Secure;
use crate::state::ServeState;
use crate::tester::{DrainingFlows, LOOK as SETTLING};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use linerate_engine::Stop;
use serde_json::Value;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Maximum bytes of a document.
const LONGEST_BODY: usize = 16 << 20;
/// Documents longer than this, or without a length, are read one at a time.
const LONG_BODY: u64 = 256 << 10;
/// Timeout of request headers, and of a body.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Write timeout of a client that does not read its answer.
const TAKE_LIMIT: Duration = Duration::from_secs(30);
/// Interval of rate updates.
const TICK: Duration = Duration::from_millis(500);
/// Interval of checks for the stop request.
const LOOK: Duration = Duration::from_millis(50);
/// Wrong tokens per second after which further answers are delayed.
const WRONG: u32 = 10;
const LATE: Duration = Duration::from_secs(1);

/// Maximum characters of an answer in the log.
const MOST_TOLD: usize = 300;

/// Number of answering threads: answers are produced one at a time, and each thread would retain allocator memory.
const ANSWERING: usize = 1;

/// Maximum number of event streams.
const WATCHERS: usize = 16;

/// State shared by all connections.
struct Shared {
    desk: Arc<ServeState>,
    guard: Guard,
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "built without"))]
    secure: Option<Secure>,
    long: Semaphore,
    watchers: Arc<Semaphore>,
    /// Number of rate updates: wakes the event streams.
    ticked: watch::Sender<u64>,
    /// Wrong tokens of each client in its current second, with the start of that second.
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    notify: Box<dyn Fn(&str) + Send + Sync>,
}

/// Serves until stopping is requested; the listener must be non-blocking; with `secure` only over TLS. `notify` receives
/// each rejected request.
///
/// # Errors
/// Sockets cannot be polled.
pub fn serve(
    listener: std::net::TcpListener,
    desk: Arc<ServeState>,
    guard: Guard,
    secure: Option<Secure>,
    stop: &Stop,
    notify: impl Fn(&str) + Send + Sync + 'static,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(ANSWERING)
        .build()?;
    let shared = Arc::new(Shared {
        desk,
        guard: if secure.is_some() { guard.secure() } else { guard },
        secure,
        long: Semaphore::new(1),
        watchers: Arc::new(Semaphore::new(WATCHERS)),
        ticked: watch::Sender::new(0),
        wrong: Mutex::default(),
        notify: Box::new(notify),
    });
    let result = runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let ticking = tokio::spawn(tick(Arc::clone(&shared)));
        let room = Connections::default();
        while !stop.is_requested() {
            let Ok(accepted) = tokio::time::timeout(LOOK, listener.accept()).await else { continue };
            // For example too many open files: others may be closed.
            let Ok((stream, from)) = accepted else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let Some(place) = room.enter(from.ip()) else { continue };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                connection(stream, from.ip(), shared).await;
                drop(place);
            });
        }
        ticking.abort();
        Ok(())
    });
    shared.desk.measuring.stop();
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}

/// Updates rates twice per second and wakes the event streams.
async fn tick(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(TICK).await;
        let all = Arc::clone(&shared);
        let note = move || {
            all.desk.tester().tick(Instant::now());
        };
        let _ = tokio::task::spawn_blocking(note).await;
        shared.ticked.send_modify(|ticks| *ticks += 1);
    }
}

async fn connection(stream: TcpStream, from: IpAddr, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    #[cfg(feature = "tls")]
    if let Some(secure) = &shared.secure {
        match tokio::time::timeout(HEAD_LIMIT, secure.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => answer_to(TokioIo::new(stream), from, shared).await,
            Ok(Err(error)) => (shared.notify)(&format!("refused: {from}: {}", linerate_tls::explain(error))),
            Err(_) => (shared.notify)(&format!("refused: {from}: TLS handshake timed out after 10 s")),
        }
        return;
    }
    answer_to(TokioIo::new(stream), from, shared).await;
}

/// Serves the requests of a connection.
async fn answer_to(stream: impl hyper::rt::Read + hyper::rt::Write + Unpin, from: IpAddr, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(request, from, &shared).await) }
    });
    // Errors end the connection.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(64 << 10)
        .serve_connection(TimedStream::new(stream, TAKE_LIMIT), service)
        .await;
}

/// Body of an answer.
type ResponseBody = Either<Full<Bytes>, Events>;

async fn respond(request: Request<Incoming>, from: IpAddr, shared: &Arc<Shared>) -> Response<ResponseBody> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let has_body = method != Method::GET && method != Method::HEAD;
    let asset = if method == Method::GET { page::asset(&path) } else { None };
    let checked = match asset {
        Some(_) => shared.guard.check_host(request.headers()),
        None => shared.guard.check(request.headers(), has_body),
    };
    if let Err((status, what)) = checked {
        shared.report_rejected(from, what);
        if status == 401 {
            shared.delay_response(from).await;
        }
        return response(Answer::refuse(status, &[what.to_owned()]));
    }
    if let Some((kind, body)) = asset {
        return with_headers(Response::new(Either::Left(Full::new(Bytes::from_static(body)))), kind);
    }
    if method == Method::GET && path == "/api/v1/events" {
        let page = match Page::read(&query(request.uri())) {
            Ok(page) => page,
            Err(faults) => return response(faults.into()),
        };
        return match Arc::clone(&shared.watchers).try_acquire_owned() {
            Ok(permit) => watch(shared, permit, page),
            Err(_) => response(Answer::refuse(503, &["too many event streams".to_owned()])),
        };
    }
    let has_query = method == Method::GET && request.uri().query().is_some();
    let asked_for = if has_query { query(request.uri()).to_string().into() } else { Bytes::new() };
    let body = match take(request, has_body, shared).await {
        Ok(body) if has_body => body,
        Ok(_) => asked_for,
        Err((status, what)) => {
            shared.refused(&method, &path, what);
            return response(Answer::refuse(status, &[what.to_owned()]));
        }
    };
    let (desk, called, document) = (Arc::clone(&shared.desk), path.clone(), body.clone());
    let asked = method.to_string();
    let answered = tokio::task::spawn_blocking(move || answer(&desk, &asked, &called, &document)).await;
    let answer = answered.unwrap_or_else(|_| Answer::refuse(500, &["internal error (a bug)".to_owned()]));
    if answer.status >= 400 {
        let shown: String = String::from_utf8_lossy(&answer.body).chars().take(MOST_TOLD).collect();
        shared.refused(&method, &path, &shown);
    } else if has_body && !page::is_read_only(&path) {
        let shown: String = String::from_utf8_lossy(&body).chars().take(MOST_TOLD).collect();
        shared.desk.note(&format!("{method} {path} {shown}"));
    }
    if let Some(after) = answer.after.clone() {
        settle(&shared.desk, *after).await;
    }
    response(answer)
}

/// Waits for the condition of an answer, without blocking others.
async fn settle(desk: &Arc<ServeState>, mut after: DrainingFlows) {
    loop {
        let desk = Arc::clone(desk);
        let look = move || {
            let is_there = after.look(&desk.tester(), Instant::now());
            (!is_there).then_some(after)
        };
        let Ok(Some(same)) = tokio::task::spawn_blocking(look).await else { return };
        after = same;
        tokio::time::sleep(SETTLING).await;
    }
}

/// Parses the query parameters of a URL (URL standard, application/x-www-form-urlencoded).
fn query(address: &hyper::Uri) -> Value {
    let text = |part: &str| {
        let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
        while let Some((first, others)) = rest.split_first() {
            let pair = others.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
            let value = pair.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok());
            bytes.push(value.unwrap_or(if *first == b'+' { b' ' } else { *first }));
            rest = &others[if value.is_some() { 2 } else { 0 }..];
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pairs = address.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (text(name), Value::from(text(value)))).collect::<serde_json::Map<_, _>>().into()
}

/// Reads the body of a request, within limits of size and time.
async fn take(request: Request<Incoming>, has_body: bool, shared: &Shared) -> Result<Bytes, (u16, &'static str)> {
    if !has_body {
        return Ok(Bytes::new());
    }
    let length = request.headers().get(hyper::header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    let is_long = length.is_none_or(|length: u64| length > LONG_BODY);
    if length.is_some_and(|length| length > LONGEST_BODY as u64) {
        return Err((413, "document too long; at most 16 MiB"));
    }
    let _turn = if is_long { shared.long.acquire().await.ok() } else { None };
    let body = Limited::new(request.into_body(), LONGEST_BODY).collect();
    match tokio::time::timeout(BODY_LIMIT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err((413, "document too long (at most 16 MiB) or incomplete")),
        Err(_) => Err((408, "document took longer than 30 s")),
    }
}

impl Shared {
    /// Reports a failed request.
    fn refused(&self, method: &Method, path: &str, what: &str) {
        let what = format!("refused: {method} {path}: {what}");
        (self.notify)(&what);
        self.desk.note(&what);
    }

    /// Reports a rejected client, rate-limited, as a client may repeat it often.
    fn report_rejected(&self, from: IpAddr, why: &'static str) {
        if let Some(times) = self.desk.refuse(from, why) {
            let often = if times > 1 { format!(" {times} times") } else { String::new() };
            (self.notify)(&format!("refused{often}: {from}: {why}"));
        }
    }

    /// Delays the answer to a client with many wrong tokens, and to no other.
    async fn delay_response(&self, from: IpAddr) {
        let wrong = {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.retain(|_, (_, began)| began.elapsed() <= Duration::from_secs(1));
            let (times, _) = wrong.entry(client(from)).or_insert((0, Instant::now()));
            *times += 1;
            *times
        };
        if wrong > WRONG {
            tokio::time::sleep(LATE).await;
        }
    }
}

/// Stream of figures twice per second. Slow readers get fewer, and always the latest.
struct Events(Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn watch(shared: &Arc<Shared>, permit: OwnedSemaphorePermit, page: Page) -> Response<ResponseBody> {
    let (sender, receiver) = channel(1);
    tokio::spawn(send_figures(Arc::clone(shared), sender, permit, page));
    with_headers(Response::new(Either::Right(Events(receiver))), EVENTS)
}

/// Sends figures to a client: each event stream renders only its own page of rows.
async fn send_figures(shared: Arc<Shared>, sender: Sender<Bytes>, _permit: OwnedSemaphorePermit, page: Page) {
    let mut ticked = shared.ticked.subscribe();
    for number in 1u64.. {
        let desk = Arc::clone(&shared.desk);
        let figures = tokio::task::spawn_blocking(move || figures(&desk, page).to_string());
        let Ok(text) = figures.await else { return };
        let event = [format!("id: {number}\ndata: ").as_bytes(), text.as_bytes(), b"\n\n"].concat();
        if sender.send(event.into()).await.is_err() || ticked.changed().await.is_err() {
            return;
        }
    }
}

fn response(answer: Answer) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(answer.body))));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if answer.status == 401 {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    with_headers(response, answer.kind)
}

fn with_headers(mut response: Response<ResponseBody>, kind: &'static str) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    let set = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
    ];
    for (name, value) in set {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
