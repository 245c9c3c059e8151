//! A test ClickHouse as seen by a sensor: inserts over HTTP, deduplicated by token, or by content without a token. It
//! fails on request. Uses only the standard library.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Good,
    /// The connection closes before the insert.
    CutBefore,
    /// The connection closes in the middle of the request.
    CutWithin,
    /// The insert is done, and the connection closes without an answer.
    CutAfter,
    /// Error 242, 60, 33, ...; nothing is inserted.
    Error(u32),
    /// Bytes that are not HTTP.
    Garbage,
    /// All connections close, and requests fail for this number of milliseconds.
    Down(u64),
}

/// A completed insert.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    /// Query parameters of the URL, not decoded.
    pub query: BTreeMap<String, String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub body: Vec<u8>,
}

#[derive(Default)]
struct State {
    inserts: Vec<Insert>,
    known: BTreeSet<Vec<u8>>,
    down_until: Option<Instant>,
    /// Number of repeated inserts.
    again: u64,
    /// Answers to queries for the table and for its settings.
    table: Option<[String; 2]>,
    /// Maximum number of partitions per insert, and the function that counts them.
    parts: Option<(usize, Partitions)>,
}

/// Counts the partitions of an insert.
type Partitions = fn(&[u8]) -> usize;

pub(crate) struct Store {
    pub port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    pub cuts: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

type Moods = Arc<Mutex<Box<dyn FnMut() -> Mood + Send>>>;

impl Store {
    /// Starts a server that calls `mood` for each insert.
    pub(crate) fn start(mood: impl FnMut() -> Mood + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, stop, cuts) =
            (Arc::<Mutex<State>>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let moods: Moods = Arc::new(Mutex::new(Box::new(mood)));
        let shared = (Arc::clone(&state), Arc::clone(&stop), Arc::clone(&cuts));
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (state, stop, cuts) = shared.clone();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let moods = Arc::clone(&moods);
                std::thread::spawn(move || {
                    let _ = serve(stream, &state, &cuts, &moods);
                });
            }
        };
        let thread = Some(std::thread::spawn(accept));
        Store { port, state, stop, cuts, thread }
    }

    pub(crate) fn inserts(&self) -> Vec<Insert> {
        self.state.lock().unwrap().inserts.clone()
    }

    /// Number of repeated inserts.
    pub(crate) fn again(&self) -> u64 {
        self.state.lock().unwrap().again
    }

    /// Sets the answers for `system.tables` and `system.merge_tree_settings`.
    pub(crate) fn set_table(&self, table: &str, settings: &str) {
        self.state.lock().unwrap().table = Some([table.to_owned(), settings.to_owned()]);
    }

    /// Rejects inserts with more than `most` partitions.
    pub(crate) fn limit(&self, most: usize, partitions: Partitions) {
        self.state.lock().unwrap().parts = Some((most, partitions));
    }

    pub(crate) fn down(&self, span: Duration) {
        self.state.lock().unwrap().down_until = Some(Instant::now() + span);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>, cuts: &AtomicU64, moods: &Moods) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let url = line
            .strip_prefix("POST /?")
            .and_then(|rest| rest.strip_suffix(" HTTP/1.1\r\n"))
            .expect("a POST")
            .to_owned();
        let mut head = BTreeMap::new();
        loop {
            let mut line = String::new();
            input.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) => head.insert(name.to_ascii_lowercase(), value.to_owned()),
                None => break,
            };
        }
        if state.lock().unwrap().down_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        if url.starts_with("query=SELECT%20") {
            let answers = state.lock().unwrap().table.clone().unwrap_or_default();
            let body = &answers[usize::from(url.contains("merge_tree_settings"))];
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
            continue;
        }
        let mood = (moods.lock().unwrap())();
        if mood != Mood::Good {
            cuts.fetch_add(1, Ordering::Relaxed);
        }
        let length: usize = head["content-length"].parse().unwrap();
        let mut body = vec![0; if mood == Mood::CutWithin { length / 2 } else { length }];
        match mood {
            Mood::CutBefore => return Ok(()),
            Mood::Down(ms) => {
                state.lock().unwrap().down_until = Some(Instant::now() + Duration::from_millis(ms));
                return Ok(());
            }
            _ => input.read_exact(&mut body)?,
        }
        let is_mixed = |(most, partitions): (usize, Partitions)| partitions(&body) > most;
        if mood == Mood::Good && state.lock().unwrap().parts.is_some_and(is_mixed) {
            refuse(
                &mut out,
                252,
                "Too many partitions for single INSERT block (more than 100). The limit is controlled by",
            )?;
            continue;
        }
        match mood {
            Mood::CutWithin => return Ok(()),
            Mood::Garbage => return out.write_all(b"\x15\x03\x01\x00\x02\x02\x46"),
            Mood::Error(code) => {
                refuse(&mut out, code, "so it is")?;
                continue;
            }
            _ => {}
        }
        let query: BTreeMap<String, String> = url
            .split('&')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let token = query.get("insert_deduplication_token").map_or(body.clone(), |token| token.clone().into_bytes());
        let insert = Insert {
            query,
            user: head.get("x-clickhouse-user").cloned(),
            password: head.get("x-clickhouse-key").cloned(),
            body,
        };
        let mut state = state.lock().unwrap();
        if state.known.insert(token) {
            state.inserts.push(insert);
        } else {
            state.again += 1;
        }
        drop(state);
        if mood == Mood::CutAfter {
            return Ok(());
        }
        out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")?;
    }
}

fn refuse(out: &mut TcpStream, code: u32, why: &str) -> std::io::Result<()> {
    let text = format!("Code: {code}. DB::Exception: {why}\n");
    let length = text.len();
    write!(out, "HTTP/1.1 500 No\r\nX-ClickHouse-Exception-Code: {code}\r\nContent-Length: {length}\r\n\r\n{text}")
}
