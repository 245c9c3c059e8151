//! Stream files: several streams with sizes, rates, counts and successors, as TOML.
//!
//! The keys are in [`keys`]; `docs/streams.md` describes them, `docs/streams.schema.json` is their schema.
//!
//! ```
//! use linerate_generate::file::{Setup, streams};
//! let text = r#"
//! [[stream]]
//! packet = "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)"
//! size = "imix"
//! rate = "250kpps"
//! "#;
//! let set = streams("dns.toml", text, &Setup::default())?;
//! assert_eq!((set.streams.len(), set.streams[0].variants.len()), (1, 12));
//! let error = streams("dns.toml", &text.replace("dport", "dprt"), &Setup::default()).unwrap_err();
//! assert!(error.to_string().starts_with("dns.toml:3:42: stream 1, packet: \"dprt\": udp has no \"dprt\"; did you mean dport?"));
//! # Ok::<(), linerate_generate::file::FileError>(())
//! ```

pub mod keys;
mod read;
mod unused_keys;

pub use keys::schema;

use crate::packet::{self, Files, SMALLEST, Sizes};
use crate::rate::{Rate, RequestedRate};
use crate::stream::{Mark, Next, Order, Shape, Span, Stream, StreamSet};
use crate::text_error::{TextError, choices};
use crate::trailer::Key;
use linerate_headers::Link;
use read::{Fault, SourceValue, Table};

/// Options besides the file.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Link type of the frames.
    pub link: Link,
    /// Line rate in bits per second at layer 1, for shares of it.
    pub line: Option<f64>,
    /// Reader of frames in capture files.
    pub files: Files<'a>,
}

impl Default for Setup<'_> {
    /// Ethernet, a line of unknown rate, no files.
    fn default() -> Self {
        Setup {
            link: Link::Ethernet,
            line: None,
            files: &|name, _| Err(format!("{name}: files are not supported here")),
        }
    }
}

/// Error in a stream file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {key}{what}")]
pub struct FileError {
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    key: String,
    what: String,
}

impl FileError {
    /// Returns the problem and its remedy, without the position.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// Maximum number of streams in a file.
const MOST_STREAMS: usize = 1 << 20;
/// Limit of stream numbers in trailers, exclusive.
const MOST_ID: u64 = 1 << 24;

/// Parses the streams of a file; `name` is its name in errors.
///
/// # Errors
/// The first error: its position, stream and key, and the remedy.
pub fn streams(name: &str, text: &str, setup: &Setup<'_>) -> Result<StreamSet, FileError> {
    let parsed = toml::de::DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        located(name, text, Fault { key: String::new(), wrong: TextError::new(at, error.message().to_owned()) })
    })?;
    let table = Table::of(text, "", 0..0, parsed.get_ref(), keys::SET).map_err(|fault| located(name, text, fault))?;
    set(&table, setup).map_err(|fault| located(name, text, fault))
}

fn located(file: &str, text: &str, Fault { key, wrong }: Fault) -> FileError {
    let mut start = wrong.at.start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let before = &text[..start];
    let line = before.rsplit('\n').next().unwrap_or_default();
    let key = if key.is_empty() { key } else { format!("{key}: ") };
    let (line, column) = (before.matches('\n').count() + 1, line.chars().count() + 1);
    FileError { file: file.to_owned(), line, column, key, what: wrong.what }
}

fn set(table: &Table<'_>, setup: &Setup<'_>) -> Result<StreamSet, Fault> {
    let order = match table.text("order") {
        None => Order::Interleaved,
        Some(SourceValue { value: "interleaved", .. }) => Order::Interleaved,
        Some(SourceValue { value: "sequential", .. }) => Order::Sequential,
        Some(other) => return Err(illegal(table, "order", &other)),
    };
    let rate = rate(table, setup)?;
    let seed = table.number("seed")?.map_or(0, |seed| seed.value);
    let key = match table.number("key")? {
        None => Key::default(),
        Some(SourceValue { value: 0, at }) => {
            let what = "invalid key 0: zero bytes would be valid trailers; expected any other number".to_owned();
            return Err(table.fault("key", at, what));
        }
        Some(key) => Key(key.value),
    };
    let tables = table.tables("stream", keys::STREAM)?;
    if tables.is_empty() || tables.len() > MOST_STREAMS {
        return Err(table.fault("", table.at.clone(), format!("expected 1 to {MOST_STREAMS} tables [[stream]]")));
    }
    let usual = if rate.is_some() { Rate::Frames(1.0) } else { Rate::Top };
    let mut streams = Vec::with_capacity(tables.len());
    for (index, table) in tables.iter().enumerate() {
        streams.push(stream(table, index, usual, seed, setup)?);
    }
    numbered(&tables, &mut streams)?;
    let names: Vec<String> = streams.iter().map(|stream| stream.name.clone()).collect();
    for (index, (table, stream)) in tables.iter().zip(&mut streams).enumerate() {
        stream.next = next(table, index, &names)?;
    }
    for (table, stream) in tables.iter().zip(&mut streams) {
        stream.span = span(table, (order, rate, stream.rate))?;
    }
    let unlike = streams.iter().position(|stream| (stream.rate == Rate::Top) != (streams[0].rate == Rate::Top));
    if let Some(index) = unlike.filter(|_| order == Order::Interleaved) {
        let what =
            "interleaved streams need all a rate or all \"max\"; one with \"max\" would starve the others".to_owned();
        return Err(tables[index].fault("rate", tables[index].at.clone(), what));
    }
    let endless = streams.iter().position(|stream| stream.count.is_none());
    if let Some(index) = endless.filter(|index| order == Order::Sequential && index + 1 < streams.len()) {
        let what = "an endless stream blocks the rest of its sequence; set a count".to_owned();
        return Err(tables[index].fault("count", tables[index].at.clone(), what));
    }
    let set = StreamSet { streams, order, rate, key };
    unused_keys::check(table, &tables, &set)?;
    Ok(set)
}

fn stream(table: &Table<'_>, index: usize, usual: Rate, seed: u64, setup: &Setup<'_>) -> Result<Stream, Fault> {
    let at = table.at.clone();
    let packet = table
        .text("packet")
        .ok_or_else(|| table.fault("packet", at, format!("missing packet; expected {}", legal("packet"))))?;
    // Streams of one file have different random values.
    let seed = seed.wrapping_add((index as u64).wrapping_mul(0x9e6c_63d0_876a_3f6b));
    let sizes = match table.text("size") {
        None => Sizes::Natural(SMALLEST),
        Some(size) => packet::sizes(size.value, seed).map_err(|wrong| table.within("size", &size, wrong))?,
    };
    let whole = ["raw", "file"].iter().any(|name| packet.value.trim_start().starts_with(name));
    let mark = match table.text("check") {
        None if whole => Mark::Count,
        None => Mark::Trailer,
        Some(SourceValue { value: "trailer", .. }) => Mark::Trailer,
        Some(SourceValue { value: "count", .. }) => Mark::Count,
        Some(SourceValue { value: "no", .. }) => Mark::None,
        Some(other) => return Err(illegal(table, "check", &other)),
    };
    let frames = packet::Setup { link: setup.link, sizes, mark, seed, files: setup.files };
    let frames = packet::frames(packet.value, &frames).map_err(|wrong| match table.text("size") {
        Some(size) if wrong.of_size => table.fault("size", size.at, wrong.what),
        _ => table.within("packet", &packet, wrong),
    })?;
    let count = table.number("count")?;
    if let Some(none) = count.as_ref().filter(|count| count.value == 0) {
        return Err(table.fault("count", none.at.clone(), format!("expected {}", legal("count"))));
    }
    Ok(Stream {
        name: table.text("name").map_or_else(|| format!("stream {}", index + 1), |name| name.value.to_owned()),
        id: 0,
        link: frames.link,
        variants: frames.variants,
        size: frames.size,
        selectors: frames.selectors,
        rate: rate(table, setup)?.unwrap_or(usual),
        shape: shape(table, seed)?,
        count: count.map(|count| count.value),
        next: Next::Following,
        span: Span::ALWAYS,
        mark,
    })
}

/// Sets the number of each stream, and checks that names and numbers are unique.
fn numbered(tables: &[Table<'_>], streams: &mut [Stream]) -> Result<(), Fault> {
    let (mut names, mut ids) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for (index, (table, stream)) in tables.iter().zip(streams).enumerate() {
        let given = table.number("id")?;
        let id = given.as_ref().map_or(index as u64 + 1, |id| id.value);
        let at = given.map_or(table.at.clone(), |id| id.at);
        if id >= MOST_ID {
            return Err(table.fault("id", at, format!("expected {}", legal("id"))));
        }
        if !ids.insert(id) {
            return Err(table.fault("id", at, format!("duplicate number {id}")));
        }
        stream.id = id as u32;
        if !names.insert(stream.name.clone()) {
            let at = table.text("name").map_or(table.at.clone(), |name| name.at);
            return Err(table.fault("name", at, format!("duplicate name {:?}", stream.name)));
        }
    }
    Ok(())
}

fn rate(table: &Table<'_>, setup: &Setup<'_>) -> Result<Option<Rate>, Fault> {
    let Some(text) = table.text("rate") else { return Ok(None) };
    let asked: RequestedRate =
        text.value.parse().map_err(|bad| table.fault("rate", text.at.clone(), format!("{bad}")))?;
    let unknown =
        || table.fault("rate", text.at.clone(), "the line rate is unknown; give the rate in pps or gbps".to_owned());
    asked.on_line(setup.line).ok_or_else(unknown).map(Some)
}

fn shape(table: &Table<'_>, seed: u64) -> Result<Shape, Fault> {
    let Some(burst) = table.table("burst", keys::BURST)? else {
        return Ok(if table.flag("poisson") { Shape::Poisson { seed } } else { Shape::Even });
    };
    if table.flag("poisson") {
        return Err(table.fault(
            "poisson",
            burst.at.clone(),
            "cannot be combined with burst; remove one of the two".to_owned(),
        ));
    }
    let missing = |name: &str| burst.fault(name, burst.at.clone(), format!("expected {}", legal("burst")));
    let frames = burst.number("frames")?.filter(|frames| frames.value > 0).ok_or_else(|| missing("frames"))?;
    let gap = burst.text("gap").ok_or_else(|| missing("gap"))?;
    let nanos = nanos(gap.value).ok_or_else(|| illegal_of(keys::BURST, &burst, "gap", &gap))?;
    Ok(Shape::Bursts { frames: frames.value, gap: nanos })
}

/// Parses the start and duration of a stream, for the order of its set, the common rate, and its own rate.
fn span(table: &Table<'_>, (order, all, own): (Order, Option<Rate>, Rate)) -> Result<Span, Fault> {
    let time = |name: &'static str| {
        let Some(text) = table.text(name) else { return Ok(None) };
        let why = match (order, all, own) {
            (Order::Sequential, ..) => "streams in a sequence begin when the previous one ends; set a count there",
            (_, Some(_), _) => "needs a rate per stream; remove the common rate above [[stream]]",
            (_, _, Rate::Top) => "needs a rate; set one other than \"max\"",
            _ => return nanos(text.value).map(Some).ok_or_else(|| illegal(table, name, &text)),
        };
        Err(table.fault(name, text.at, why.to_owned()))
    };
    let (start, length) = (time("start")?.unwrap_or(0), time("for")?);
    match table.text("for").filter(|_| length == Some(0)) {
        Some(text) => Err(table.fault("for", text.at, "the duration is 0; expected a time above 0".to_owned())),
        None => Ok(Span { start, length }),
    }
}

/// Parses a time: `250ns`, `10us`, `1.5ms`, `2s`.
fn nanos(text: &str) -> Option<u64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.trim().strip_suffix(name)?, unit)))?;
    let nanos = number.trim().parse::<f64>().ok()? * unit;
    (0.0..1e18).contains(&nanos).then_some(nanos.round() as u64)
}

fn next(table: &Table<'_>, own: usize, names: &[String]) -> Result<Next, Fault> {
    let Some(text) = table.text("next") else { return Ok(Next::Following) };
    match text.value.trim() {
        "next" => return Ok(Next::Following),
        "stop" => return Ok(Next::Stop),
        _ => {}
    }
    let target = text.value.trim().strip_prefix("goto ").ok_or_else(|| illegal(table, "next", &text))?.trim();
    let index = |name: &str| names.iter().position(|of| of == name);
    if let Some(stream) = index(target) {
        return Ok(Next::Goto { stream, times: None });
    }
    let (name, times) =
        target.rsplit_once(" x").map_or((target, None), |(name, times)| (name.trim(), times.parse().ok()));
    let unknown = || {
        let names = choices(name, names.iter().take(20).map(String::as_str));
        table.fault("next", text.at.clone(), format!("no stream is called {name:?}; {names}"))
    };
    let stream = index(name).ok_or_else(unknown)?;
    let times: u64 = times.filter(|times| *times > 0).ok_or_else(|| illegal(table, "next", &text))?;
    // A jump back repeats streams that were sent once already: the number is that of all passes.
    Ok(Next::Goto { stream, times: Some(if stream <= own { times - 1 } else { times }) })
}

fn illegal(table: &Table<'_>, name: &str, value: &SourceValue<&str>) -> Fault {
    illegal_of(if table.name.is_empty() { keys::SET } else { keys::STREAM }, table, name, value)
}

fn illegal_of(keys: &[keys::Key], table: &Table<'_>, name: &str, value: &SourceValue<&str>) -> Fault {
    let legal = keys.iter().find(|key| key.name == name).map_or("", |key| key.legal);
    table.fault(name, value.at.clone(), format!("invalid value {:?}; expected {legal}", value.value))
}

fn legal(name: &str) -> &'static str {
    keys::STREAM.iter().find(|key| key.name == name).map_or("", |key| key.legal)
}
