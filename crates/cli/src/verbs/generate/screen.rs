//! Progress while streams are sent: one text or JSON line per interval. Counts are of the run so far, rates of the
//! interval; totals are the sums over the streams.

use super::names::Names;
use crate::view::live::Live as Lines;
use crate::view::rates::{Rates, format_nonzero, frames_per_second, grouped};
use crate::view::terminal::{print_stderr, show_line, shown};
use linerate_engine::check::{CheckProgress, CheckWatch, Sent};
use linerate_engine::streams::StreamRun;
use linerate_generate::check::{AGE, Live, LiveRow, Totals};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of streams that get a line each.
const SHOWN: usize = 8;
/// Interval at which the frames sent are noted.
const NOTE: Duration = Duration::from_millis(50);

/// Timeout for the sender to update its count of frames sent.
const SENDER_TIMEOUT: Duration = Duration::from_millis(300);

/// Frames sent per stream, by index in the set, now and some time ago.
#[derive(Clone)]
pub(super) struct SentHistory {
    run: StreamRun,
    names: Names,
    checked: Option<CheckWatch>,
    notes: Arc<Mutex<SentSamples>>,
}

/// Frames sent per stream, at several times.
type SentSamples = VecDeque<(Instant, Vec<u64>)>;

impl SentHistory {
    /// Observes a run and its check.
    pub(super) fn new(run: &StreamRun, names: &Names, checked: Option<CheckWatch>) -> Self {
        SentHistory { run: run.clone(), names: names.clone(), checked, notes: Arc::default() }
    }

    /// Prints progress every `interval`, and with a check notes the frames sent, until the result is dropped.
    pub(super) fn start(&self, interval: Option<Duration>, json: bool) -> Lines {
        let mut print = self.ticker(json);
        match (interval, self.checked.is_some()) {
            (None, false) => Lines::none(),
            (Some(interval), false) => Lines::every(interval, print),
            (interval, true) => {
                let (watching, mut printed) = (self.clone(), Instant::now());
                Lines::every(interval.unwrap_or(NOTE).min(NOTE), move || {
                    watching.note();
                    if let Some(interval) = interval.filter(|interval| printed.elapsed() >= *interval) {
                        printed += interval;
                        print();
                    }
                })
            }
        }
    }

    /// Records the frames sent so far.
    fn note(&self) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        notes.push_back((now, self.sent()));
        while notes.get(1).is_some_and(|(then, _)| now.duration_since(*then) >= AGE) {
            notes.pop_front();
        }
    }

    /// Returns the frames sent, and the result of the check, so far.
    pub(super) fn so_far(&self) -> String {
        let sent = self.sent();
        let by_stream = || Sent { now: self.names.checked_by_stream(&sent), aged: self.aged() };
        match self.checked.as_ref().and_then(|watch| watch.so_far(Some(by_stream()))) {
            Some(CheckProgress { summary, rows }) => self.names.checked(&summary, rows),
            None if self.names.len() > 1 => self.names.sent(&sent),
            None => String::new(),
        }
    }

    /// Returns a function that prints the progress since its last call.
    fn ticker(&self, json: bool) -> impl FnMut() + Send + use<> {
        let (watching, started) = (self.clone(), Instant::now());
        let mut before = (started, 0, vec![0; self.names.len()]);
        move || {
            let live = watching.checked.as_ref().and_then(|watch| watch.live(Some(watching.aged())));
            if watching.checked.is_some() && live.is_none() {
                // The check has finished; its report follows.
                return;
            }
            let sent = watching.sent_by_now(live.as_ref());
            let now = Instant::now();
            let bytes = watching.run.progress.bytes.load(Ordering::Relaxed);
            let span = now.duration_since(before.0).as_secs_f64();
            let new: Vec<u64> = sent.iter().zip(&before.2).map(|(now, then)| now.saturating_sub(*then)).collect();
            let tick = Tick {
                seconds: started.elapsed().as_secs_f64(),
                span,
                frames: sent.iter().sum(),
                rates: Rates::new(new.iter().sum(), bytes - before.1, span),
                new,
                live,
            };
            if json {
                // A closed pipe does not end the run. Numbers and names always have a JSON form.
                let _ = show_line(&tick.json(&watching.names, &sent));
            } else {
                print_stderr(tick.text(&watching.names));
            }
            before = (now, bytes, sent);
        }
    }

    fn sent(&self) -> Vec<u64> {
        self.all(self.run.watch.sent())
    }

    fn all(&self, mut sent: Vec<u64>) -> Vec<u64> {
        sent.resize(self.names.len(), 0);
        sent
    }

    /// Returns the frames sent, not fewer than were received: the sender updates its count only now and then.
    fn sent_by_now(&self, live: Option<&Live>) -> Vec<u64> {
        let Some(Live { totals, .. }) = live else {
            return self.all(self.run.watch.sent_now(SENDER_TIMEOUT));
        };
        let seen = (totals.received + totals.counted + totals.lost).saturating_sub(totals.duplicated + totals.stale);
        let started = Instant::now();
        loop {
            let sent = self.sent();
            if sent.iter().sum::<u64>() >= seen || started.elapsed() >= SENDER_TIMEOUT {
                return sent;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the frames sent some time ago, by stream number.
    fn aged(&self) -> Vec<u64> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let aged = notes.iter().rev().find(|(then, _)| then.elapsed() >= AGE);
        aged.map_or_else(Vec::new, |(_, sent)| self.names.checked_by_stream(sent))
    }
}

struct Tick {
    seconds: f64,
    /// Length of the interval in seconds.
    span: f64,
    frames: u64,
    rates: Rates,
    /// Frames of each stream in the interval.
    new: Vec<u64>,
    live: Option<Live>,
}

impl Tick {
    fn text(&self, names: &Names) -> String {
        let (seconds, sent) = (self.seconds, grouped(self.frames));
        let rate = self.rates.frames();
        let mut text = match &self.live {
            None => {
                format!("{seconds:>4.0} s  {sent:>13} sent  {rate:>18}  {:>11} L1", self.rates.l1())
            }
            Some(Live { totals, .. }) => {
                let (received, lost) = (grouped(totals.received + totals.counted), grouped(totals.lost));
                let more = format_nonzero(&[
                    (totals.duplicated, "duplicated"),
                    (totals.reordered, "reordered"),
                    (totals.corrupted, "corrupted"),
                ]);
                format!("{seconds:>4.0} s {sent:>11} sent {rate:>16} {received:>11} received {lost:>7} lost{more}")
            }
        };
        text += "\n";
        if (2..=SHOWN).contains(&names.len()) {
            for (place, frames) in self.new.iter().enumerate() {
                let rate = frames_per_second(*frames as f64 / self.span / 1e6);
                let checked = self.checked(names, place).map_or_else(String::new, |row| {
                    format!(" {:>11} received {:>7} lost", grouped(row.received), grouped(row.lost))
                });
                text += &format!("       {:<16} {rate:>16}{checked}\n", shown(names.get(place)));
            }
        }
        text
    }

    /// Returns the result of the check of the stream at an index of the set.
    fn checked(&self, names: &Names, place: usize) -> Option<LiveRow> {
        let live = self.live.as_ref()?;
        let mut all: Option<LiveRow> = None;
        for stream in names.numbers(place) {
            let row = all.get_or_insert(LiveRow { stream, received: 0, lost: 0 });
            if let Ok(found) = live.rows.binary_search_by_key(&stream, |row| row.stream) {
                (row.received, row.lost) = (row.received + live.rows[found].received, row.lost + live.rows[found].lost);
            }
        }
        all
    }

    fn json<'a>(&self, names: &'a Names, sent: &[u64]) -> TickJson<'a> {
        let totals: Option<&Totals> = self.live.as_ref().map(|live| &live.totals);
        let streams = sent.iter().enumerate().map(|(place, sent)| {
            let row = self.checked(names, place);
            let (received, lost) = (row.map(|row| row.received), row.map(|row| row.lost));
            StreamTick { name: names.get(place), sent: *sent, received, lost }
        });
        TickJson {
            schema: "linerate/generate/1",
            record: "interval",
            seconds: self.seconds,
            frames: self.frames,
            rates: self.rates,
            streams: streams.collect(),
            received: totals.map(|totals| totals.received + totals.counted),
            lost: totals.map(|totals| totals.lost),
            duplicated: totals.map(|totals| totals.duplicated),
            reordered: totals.map(|totals| totals.reordered),
            corrupted: totals.map(|totals| totals.corrupted),
        }
    }
}

#[derive(Serialize)]
struct TickJson<'a> {
    schema: &'static str,
    record: &'static str,
    seconds: f64,
    frames: u64,
    #[serde(flatten)]
    rates: Rates,
    streams: Vec<StreamTick<'a>>,
    received: Option<u64>,
    lost: Option<u64>,
    duplicated: Option<u64>,
    reordered: Option<u64>,
    corrupted: Option<u64>,
}

#[derive(Serialize)]
struct StreamTick<'a> {
    name: &'a str,
    sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}
