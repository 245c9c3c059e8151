//! What is shown while streams are sent: a line a second, or a JSON line an interval.

use super::report::Names;
use crate::view::rates::{Rates, bits_per_second, frames_per_second, grouped};
use crate::view::terminal::{show_line, shown, tell};
use linerate_engine::check::{CheckWatch, SoFar};
use linerate_engine::streams::Run;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// So many streams have a line of their own.
const SHOWN: usize = 8;

/// Prints what happened since the last time it was called.
pub fn ticker(run: &Run, names: Names, checked: Option<CheckWatch>, json: bool) -> impl FnMut() + Send + use<> {
    let (run, started) = (run.clone(), Instant::now());
    let mut before = (started, 0, 0, vec![0; names.len()]);
    move || {
        let now = Instant::now();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (frames, bytes) = (read(&run.progress.frames), read(&run.progress.bytes));
        let seconds = now.duration_since(before.0).as_secs_f64();
        let mut sent = run.watch.sent();
        sent.resize(names.len(), 0);
        let tick = Tick {
            seconds: started.elapsed().as_secs_f64(),
            span: seconds,
            frames,
            rates: Rates::new(frames - before.1, bytes - before.2, seconds),
            new: sent.iter().zip(&before.3).map(|(now, then)| now.saturating_sub(*then)).collect(),
            checked: checked.as_ref(),
        };
        if json {
            // A reader that is gone is no reason to end a run. Numbers and names always have a JSON form.
            let _ = show_line(&tick.json(&names));
        } else {
            tell(tick.text(&names));
        }
        before = (now, frames, bytes, sent);
    }
}

/// What was sent so far, of which streams, and what came of them.
pub fn so_far(run: &Run, names: &Names, checked: Option<CheckWatch>) -> impl FnMut() -> String + Send + use<> {
    let (watch, names) = (run.watch.clone(), names.clone());
    move || {
        let mut sent = watch.sent();
        sent.resize(names.len(), 0);
        match checked.as_ref().and_then(|watch| watch.so_far(Some(names.by_stream(&sent)))) {
            Some(SoFar { summary, rows }) => names.checked(&summary, rows),
            None if names.len() > 1 => names.sent(&sent),
            None => String::new(),
        }
    }
}

struct Tick<'a> {
    seconds: f64,
    /// How long the interval was.
    span: f64,
    frames: u64,
    rates: Rates,
    /// Frames of each stream in the interval.
    new: Vec<u64>,
    checked: Option<&'a CheckWatch>,
}

impl Tick<'_> {
    fn text(&self, names: &Names) -> String {
        let mut text = format!(
            "{:>4.0} s  {:>13} sent  {:>18}  {:>11} L1",
            self.seconds,
            grouped(self.frames),
            frames_per_second(self.rates.mpps),
            bits_per_second(self.rates.gbps_l1),
        );
        if let Some(watch) = self.checked {
            let totals = watch.look().totals;
            text += &format!(
                "\n        {:>13} received  {} missing  {} repeated  {} reordered  {} corrupted",
                grouped(totals.received + totals.counted),
                grouped(totals.missing),
                grouped(totals.duplicated),
                grouped(totals.reordered),
                grouped(totals.corrupted),
            );
        }
        text += "\n";
        if (2..=SHOWN).contains(&names.len()) {
            for (place, frames) in self.new.iter().enumerate() {
                let rate = frames_per_second(*frames as f64 / self.span / 1e6);
                text += &format!("        {:<24} {rate:>18}\n", shown(names.get(place)));
            }
        }
        text
    }

    fn json<'a>(&self, names: &'a Names) -> TickJson<'a> {
        let look = self.checked.map(|watch| watch.look());
        TickJson {
            schema: "linerate/generate/1",
            record: "interval",
            seconds: self.seconds,
            frames: self.frames,
            rates: self.rates,
            streams: (0..names.len())
                .map(|place| StreamTick { name: names.get(place), sent: self.new[place] })
                .collect(),
            received: look.map(|look| look.totals.received + look.totals.counted),
            missing: look.map(|look| look.totals.missing),
            duplicated: look.map(|look| look.totals.duplicated),
            reordered: look.map(|look| look.totals.reordered),
            corrupted: look.map(|look| look.totals.corrupted),
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
    missing: Option<u64>,
    duplicated: Option<u64>,
    reordered: Option<u64>,
    corrupted: Option<u64>,
}

#[derive(Serialize)]
struct StreamTick<'a> {
    name: &'a str,
    sent: u64,
}
