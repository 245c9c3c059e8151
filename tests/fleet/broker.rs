//! A broker of Kafka for tests: it keeps what producers send as a real one does, by their ids, epochs and sequence numbers, and is moody on
//! request. Written from the protocol's pages, apart from the client; nothing but the standard library.

#[path = "request.rs"]
mod request;

use self::request::In;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// The connection ends, and nothing was done.
    CutBefore,
    /// It was done, and the connection ends without an answer.
    CutAfter,
    /// An error, and nothing was done.
    Error(i16),
    /// It was done, and an error says that it may not stay.
    ErrorAfter(i16),
    /// Bytes that are no answer.
    Garbage,
    /// Half an answer, then nothing.
    Half,
    /// It takes so many ms.
    Slow(u64),
    /// All connections end, and none is taken for so many ms.
    Down(u64),
}

/// A message as a broker keeps it.
#[derive(Clone, Debug)]
pub struct Message {
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    pub headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct Partition {
    messages: Vec<Message>,
    /// Epoch, and first number and count of the last five batches.
    producers: BTreeMap<i64, (i16, VecDeque<(i32, i32)>)>,
}

struct State {
    topic: String,
    partitions: Vec<Partition>,
    producers: i64,
    down_until: Option<Instant>,
    /// The most bytes of a batch (`message.max.bytes`).
    longest: usize,
    /// The port that it says it has.
    advertised: Option<u16>,
    /// Who has to sign in, and the password.
    login: Option<(String, String)>,
    /// What no sound client sends.
    problems: Vec<String>,
}

pub struct Broker {
    pub port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    /// Requests that went wrong on purpose.
    pub cuts: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

type Moods = Arc<Mutex<Box<dyn FnMut(i16) -> Mood + Send>>>;

impl Broker {
    /// A broker of one topic; `mood` is asked for each request, by its number.
    pub fn start(topic: &str, partitions: usize, mood: impl FnMut(i16) -> Mood + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        let (topic, problems) = (topic.to_owned(), Vec::new());
        let state = State {
            topic,
            partitions,
            producers: 1000,
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

    /// All that it has, in order of partitions.
    pub fn messages(&self) -> Vec<Message> {
        self.state.lock().unwrap().partitions.iter().flat_map(|partition| partition.messages.clone()).collect()
    }

    /// How many messages each partition has.
    pub fn counts(&self) -> Vec<usize> {
        self.state.lock().unwrap().partitions.iter().map(|partition| partition.messages.len()).collect()
    }

    /// What no sound client sends.
    pub fn problems(&self) -> Vec<String> {
        self.state.lock().unwrap().problems.clone()
    }

    /// Forgets all producers, as after a day without a batch.
    pub fn forget(&self) {
        self.state.lock().unwrap().partitions.iter_mut().for_each(|partition| partition.producers.clear());
    }

    /// Takes no longer batches than these.
    pub fn limit(&self, longest: usize) {
        self.state.lock().unwrap().longest = longest;
    }

    /// Says that it listens there.
    pub fn advertise(&self, port: u16) {
        self.state.lock().unwrap().advertised = Some(port);
    }

    /// Wants everybody to sign in by PLAIN.
    pub fn sign_in(&self, user: &str, password: &str) {
        self.state.lock().unwrap().login = Some((user.to_owned(), password.to_owned()));
    }

    /// Is away for so long.
    pub fn down(&self, span: Duration) {
        self.state.lock().unwrap().down_until = Some(Instant::now() + span);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes who accepts.
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
    let mut is_known = state.lock().unwrap().login.is_none();
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
                state.lock().unwrap().down_until = Some(Instant::now() + Duration::from_millis(ms));
                return Ok(());
            }
            _ => {}
        }
        let answer = if matches!(key, 17 | 36) {
            let (answer, is_good) = sign(key, body, state.lock().unwrap().login.as_ref());
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
            Mood::Garbage => return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            Mood::Half => return stream.write_all(&all[..all.len() / 2]),
            _ => stream.write_all(&all)?,
        }
    }
}

/// False: the broker is down, or ends.
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

/// Takes a message of signing in, and says whether it was the right one.
fn sign(key: i16, mut body: In<'_>, login: Option<&(String, String)>) -> (Vec<u8>, bool) {
    if key == 17 {
        let error: i16 = if body.text().unwrap() == "PLAIN" { 0 } else { 33 };
        return ([&error.to_be_bytes()[..], &1i32.to_be_bytes(), &text("PLAIN")].concat(), false);
    }
    let length = body.number(4) as usize;
    let is_good =
        login.is_some_and(|(user, password)| body.bytes(length) == format!("\0{user}\0{password}").as_bytes());
    let error: i16 = if is_good { 0 } else { 58 };
    ([&error.to_be_bytes()[..], &text("so it is"), &0i32.to_be_bytes()].concat(), is_good)
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
            let (error, count) = if name == state.topic { (error, state.partitions.len()) } else { (3, 0) };
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

/// Takes a batch as a broker does, and says which error it answers.
fn append(state: &mut State, partition: usize, batch: &[u8]) -> i16 {
    let all = batch;
    let mut batch = In(batch);
    batch.number(8);
    let length = batch.number(4) as usize;
    batch.number(4);
    let (magic, crc) = (batch.number(1), batch.number(4) as u32);
    if length + 12 != all.len() || magic != 2 || crc != crc32c(batch.0) {
        state.problems.push("a damaged batch".to_owned());
        return 2;
    }
    let (attributes, last) = (batch.number(2), batch.number(4));
    batch.bytes(16);
    let (producer, epoch, sequence) = (batch.number(8), batch.number(2) as i16, batch.number(4) as i32);
    let count = batch.number(4) as i32;
    if attributes != 0 || last + 1 != i64::from(count) || producer < 0 || sequence < 0 {
        state
            .problems
            .push(format!("attributes {attributes}, {count} records, producer {producer}, sequence {sequence}"));
    }
    let mut messages = Vec::new();
    for offset in 0..count {
        let length = batch.var() as usize;
        let mut record = In(batch.bytes(length));
        record.bytes(1);
        record.var();
        assert_eq!(record.var(), i64::from(offset));
        let (key, value) = (record.var_bytes().map(<[u8]>::to_vec), record.var_bytes().unwrap().to_vec());
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let headers = (0..record.var()).map(|_| (text(record.var_bytes()), text(record.var_bytes()))).collect();
        assert!(record.0.is_empty());
        messages.push(Message { key, value, headers });
    }
    assert!(batch.0.is_empty());
    let partition = &mut state.partitions[partition];
    if let Some((known, batches)) = partition.producers.get(&producer) {
        if epoch < *known {
            return 47;
        }
        if batches.contains(&(sequence, count)) {
            return 0;
        }
        let next =
            batches.back().map_or(0, |(first, count)| (i64::from(*first) + i64::from(*count)) & i64::from(i32::MAX));
        if epoch == *known && i64::from(sequence) != next {
            return 45;
        }
    }
    let (known, batches) = partition.producers.entry(producer).or_default();
    *known = epoch;
    batches.push_back((sequence, count));
    if batches.len() > 5 {
        batches.pop_front();
    }
    partition.messages.extend(messages);
    0
}

/// Bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
