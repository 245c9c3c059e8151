//! A Kafka broker for tests: it stores batches by producer id, epoch and sequence number as a real one does, and fails
//! on request. Written from the protocol specification, independently of the client; uses only the standard library.

#[path = "append.rs"]
mod append;
#[path = "request.rs"]
mod request;
#[path = "sasl.rs"]
mod sign;

use self::append::append;
use self::request::In;
use self::sign::{Login, PLAIN, SCRAM, Scram, sign};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Id before the first producer id.
const FIRST_PRODUCER: i64 = 1000;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Good,
    /// The connection closes before the request is handled.
    CutBefore,
    /// The request is handled, and the connection closes without an answer.
    CutAfter,
    /// The request is handled, and no answer is sent.
    Mute,
    /// An error; the request is not handled.
    Error(i16),
    /// The request is handled and answered with an error, as if it might be lost.
    ErrorAfter(i16),
    /// Bytes that are not a Kafka answer.
    Garbage,
    /// Half an answer, then the connection closes.
    Half,
    /// A delay of this number of milliseconds.
    Slow(u64),
    /// A restart: all connections close, requests fail for this number of milliseconds, and only the last batch of
    ///     /// each producer is remembered.
    Down(u64),
}

/// A stored message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    pub headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct Partition {
    messages: Vec<Message>,
    /// Epoch, and first sequence number and count of the last five batches.
    producers: BTreeMap<i64, (i16, VecDeque<(i32, i32)>)>,
}

struct State {
    topic: String,
    partitions: Vec<Partition>,
    producers: i64,
    down_until: Option<Instant>,
    /// Maximum size of a batch in bytes (`message.max.bytes`).
    longest: usize,
    /// Advertised port, if it differs from the real one.
    advertised: Option<u16>,
    /// Required login.
    login: Option<Login>,
    /// Protocol violations of clients.
    problems: Vec<String>,
}

pub(crate) struct Broker {
    pub port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    /// Number of requests that failed on purpose.
    pub cuts: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

type Moods = Arc<Mutex<Box<dyn FnMut(i16) -> Mood + Send>>>;

impl Broker {
    /// Starts a broker with one topic that calls `mood` with the API key of each request.
    pub(crate) fn start(topic: &str, partitions: usize, mood: impl FnMut(i16) -> Mood + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        let (topic, problems) = (topic.to_owned(), Vec::new());
        let state = State {
            topic,
            partitions,
            producers: FIRST_PRODUCER,
            down_until: None,
            longest: usize::MAX,
            advertised: None,
            login: None,
            problems,
        };
        let (state, stop, cuts) =
            (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
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
                    let _ = serve(stream, port, &state, &stop, &cuts, &moods);
                });
            }
        };
        let thread = Some(std::thread::spawn(accept));
        Broker { port, state, stop, cuts, thread }
    }

    /// All messages, by partition.
    pub(crate) fn messages(&self) -> Vec<Message> {
        self.state.lock().unwrap().partitions.iter().flat_map(|partition| partition.messages.clone()).collect()
    }

    /// Number of messages per partition.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.state.lock().unwrap().partitions.iter().map(|partition| partition.messages.len()).collect()
    }

    /// Protocol violations of clients.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.state.lock().unwrap().problems.clone()
    }

    /// Number of producer ids issued.
    pub(crate) fn producers(&self) -> i64 {
        self.state.lock().unwrap().producers - FIRST_PRODUCER
    }

    /// Forgets all producers, as after a day without a batch.
    pub(crate) fn forget(&self) {
        self.state.lock().unwrap().partitions.iter_mut().for_each(|partition| partition.producers.clear());
    }

    /// Recreates the topic with this number of empty partitions; 0 deletes it.
    pub(crate) fn create(&self, partitions: usize) {
        self.state.lock().unwrap().partitions = (0..partitions).map(|_| Partition::default()).collect();
    }

    /// Rejects batches longer than `longest` bytes.
    pub(crate) fn limit(&self, longest: usize) {
        self.state.lock().unwrap().longest = longest;
    }

    /// Advertises this port.
    pub(crate) fn advertise(&self, port: u16) {
        self.state.lock().unwrap().advertised = Some(port);
    }

    /// Requires a login by PLAIN.
    pub(crate) fn require_login(&self, user: &str, password: &str) {
        self.state.lock().unwrap().login = Some((PLAIN, user.to_owned(), password.to_owned()));
    }

    /// Requires a login by SCRAM-SHA-256.
    pub(crate) fn require_scram(&self, user: &str, password: &str) {
        self.state.lock().unwrap().login = Some((SCRAM, user.to_owned(), password.to_owned()));
    }

    /// Truncates each partition to `left` messages and forgets the batches of the rest.
    pub(crate) fn lose(&self, left: usize) {
        for partition in &mut self.state.lock().unwrap().partitions {
            partition.messages.truncate(left);
            partition.producers.values_mut().for_each(|(_, batches)| batches.retain(|(first, _)| *first < left as i32));
        }
    }

    /// Restarts, unreachable for `span`.
    pub(crate) fn down(&self, span: Duration) {
        self.state.lock().unwrap().restart(span);
    }
}

impl State {
    /// Keeps only the last batch of each producer, as Kafka's snapshot does.
    fn restart(&mut self, away: Duration) {
        self.down_until = Some(Instant::now() + away);
        for (_, batches) in self.partitions.iter_mut().flat_map(|partition| partition.producers.values_mut()) {
            batches.drain(..batches.len().saturating_sub(1));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes(), text.as_bytes()].concat()
}

fn serve(
    mut stream: TcpStream,
    port: u16,
    state: &Mutex<State>,
    stop: &AtomicBool,
    cuts: &AtomicU64,
    moods: &Moods,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    stream.set_nodelay(true)?;
    let (mut is_known, mut scram) = (state.lock().unwrap().login.is_none(), Scram::default());
    loop {
        let mut length = [0; 4];
        if !fill(&mut stream, &mut length, state, stop)? {
            return Ok(());
        }
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        if request.len() > 4 << 20 || !fill(&mut stream, &mut request, state, stop)? {
            return Ok(());
        }
        let mut body = In(&request);
        let (key, version, number) = (body.number(2) as i16, body.number(2), body.number(4) as i32);
        body.text();
        let mood = (moods.lock().unwrap())(key);
        if !matches!(mood, Mood::Good | Mood::Slow(_)) {
            cuts.fetch_add(1, Ordering::Relaxed);
        }
        match mood {
            Mood::CutBefore => return Ok(()),
            Mood::Slow(ms) => std::thread::sleep(Duration::from_millis(ms)),
            Mood::Down(ms) => {
                state.lock().unwrap().restart(Duration::from_millis(ms));
                return Ok(());
            }
            _ => {}
        }
        let answer = if matches!(key, 17 | 36) {
            let (answer, is_good) = sign(key, body, state.lock().unwrap().login.as_ref(), &mut scram);
            is_known |= is_good;
            answer
        } else {
            if !is_known && key != 18 {
                state.lock().unwrap().problems.push(format!("asked for {key} without signing in"));
                return Ok(());
            }
            answer(key, version, body, port, &mut state.lock().unwrap(), mood)
        };
        let all = [&((answer.len() + 4) as i32).to_be_bytes()[..], &number.to_be_bytes(), &answer].concat();
        match mood {
            Mood::CutAfter => return Ok(()),
            Mood::Mute => {}
            Mood::Garbage => return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            Mood::Half => return stream.write_all(&all[..all.len() / 2]),
            _ => stream.write_all(&all)?,
        }
    }
}

/// Fills `bytes`; returns false if the broker is down or stopping, or the connection closed.
fn fill(stream: &mut TcpStream, bytes: &mut [u8], state: &Mutex<State>, stop: &AtomicBool) -> std::io::Result<bool> {
    let mut at = 0;
    while at < bytes.len() {
        let is_down = state.lock().unwrap().down_until.is_some_and(|until| Instant::now() < until);
        if is_down || stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match stream.read(&mut bytes[at..]) {
            Ok(0) => return Ok(false),
            Ok(count) => at += count,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn answer(key: i16, version: i64, mut body: In<'_>, port: u16, state: &mut State, mood: Mood) -> Vec<u8> {
    let error = match mood {
        Mood::Error(error) => error,
        _ => 0,
    };
    match (key, version) {
        (18, 0) => {
            let mut out = [&0i16.to_be_bytes()[..], &4i32.to_be_bytes()].concat();
            for (key, least, most) in [(0i16, 3i16, 12i16), (3, 0, 13), (18, 0, 4), (22, 0, 5)] {
                [key, least, most].iter().for_each(|number| out.extend(number.to_be_bytes()));
            }
            out
        }
        (3, 4) => {
            assert_eq!(body.number(4), 1, "one topic");
            let name = body.text().unwrap();
            let (error, count) = if name == state.topic && !state.partitions.is_empty() {
                (error, state.partitions.len())
            } else {
                (3, 0)
            };
            let mut out = [&[0; 4][..], &1i32.to_be_bytes(), &7i32.to_be_bytes(), &text("127.0.0.1")].concat();
            out.extend(i32::from(state.advertised.unwrap_or(port)).to_be_bytes());
            out.extend((-1i16).to_be_bytes());
            out.extend(text("cluster"));
            out.extend(7i32.to_be_bytes());
            out.extend(1i32.to_be_bytes());
            out.extend(error.to_be_bytes());
            out.extend(text(&name));
            out.push(0);
            out.extend((count as i32).to_be_bytes());
            for partition in 0..count as i32 {
                out.extend(0i16.to_be_bytes());
                [partition, 7, 1, 7, 1, 7].iter().for_each(|number| out.extend(number.to_be_bytes()));
            }
            out
        }
        (22, 1) => {
            assert_eq!((body.text(), body.number(4)), (None, 60_000));
            state.producers += 1;
            let id = if error == 0 { state.producers } else { -1 };
            [&[0; 4][..], &error.to_be_bytes(), &id.to_be_bytes(), &0i16.to_be_bytes()].concat()
        }
        (0, 7) => {
            assert_eq!((body.text(), body.number(2)), (None, -1), "acknowledged by all");
            body.number(4);
            assert_eq!(body.number(4), 1);
            let name = body.text().unwrap();
            assert_eq!(body.number(4), 1);
            let partition = body.number(4) as usize;
            let length = body.number(4) as usize;
            let batch = body.bytes(length);
            let error = match error {
                0 if name != state.topic || partition >= state.partitions.len() => 3,
                0 if batch.len() > state.longest => 10,
                0 => append(state, partition, batch),
                error => error,
            };
            let error = if let Mood::ErrorAfter(error) = mood { error } else { error };
            let mut out = [&1i32.to_be_bytes()[..], &text(&name), &1i32.to_be_bytes()].concat();
            out.extend((partition as i32).to_be_bytes());
            out.extend(error.to_be_bytes());
            out.extend([0; 24]);
            out.extend([0; 4]);
            out
        }
        other => {
            state.problems.push(format!("asked for {other:?}"));
            Vec::new()
        }
    }
}
