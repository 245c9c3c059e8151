//! TrafficMetrics of all ports and streams for the web page.

use super::stream_spec::StreamSpec;
use crate::state::ServeState;
use crate::tester::Tester;
use linerate_otg::metrics::{TrafficMetrics, Transmit};
use linerate_otg::read::Faults;
use serde_json::{Value, json};
use std::ops::Range;

/// Maximum number of streams with figures per answer.
const MOST_ROWS: usize = 200;
/// Maximum characters of a packet's text.
const MOST_TEXT: usize = 200;

/// Range of streams to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    from: usize,
    count: usize,
}

impl Page {
    /// Reads the optional fields `from`, the index of the first stream, and `count`.
    ///
    /// # Errors
    /// A field is not a number.
    pub fn read(document: &Value) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let mut number = |name: &str, usual: usize| match &document[name] {
            Value::Null => usual,
            value => value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                faults.add(name, "expected a number");
                usual
            }),
        };
        let page = Page { from: number("from", 0), count: number("count", MOST_ROWS).min(MOST_ROWS) };
        if faults.is_empty() { Ok(page) } else { Err(faults) }
    }

    /// Returns the range of indices within a number of streams.
    pub fn places(self, streams: usize) -> Range<usize> {
        let from = self.from.min(streams);
        from..from.saturating_add(self.count).min(streams)
    }
}

/// Returns all figures, with the streams of one page: the size does not depend on their number.
pub fn figures(desk: &ServeState, page: Page) -> Value {
    let (measuring, (noted, refused)) = (desk.measuring.brief(), desk.noted());
    let tester = desk.tester();
    let ports: Vec<Value> = tester.names().enumerate().map(|(place, _)| port(&tester, place)).collect();
    let described = tester.described();
    let places = page.places(tester.streams());
    let from = places.start;
    let streams: Vec<Value> = places.map(|at| stream(&tester, at, described.get(at))).collect();
    json!({
        "schema": "linerate/serve/1", "ports": ports, "streams": streams, "streams_in_all": tester.streams(),
        "streams_from": from, "streams_active": tester.active(),
        "set_by": if described.is_empty() && tester.streams() > 0 { "otg" } else { "own" },
        "measure": measuring, "log": noted, "refused": refused
    })
}

fn port(tester: &Tester, place: usize) -> Value {
    let port = tester.port(place);
    let [mut tx, mut rx] = port.counted().0;
    port.rates.fill(&mut tx, &mut rx);
    let reception = port.listener.reception();
    let capture = &reception.captured;
    let captured = json!({
        "is_on": capture.is_on(), "frames": capture.len(), "dropped": capture.dropped, "filter": capture.text(),
        "bytes": capture.bytes()
    });
    let (is_metered, missing) = (reception.top.is_some(), reception.check.totals().missing);
    let drops = reception.losses.iter().map(|(cause, frames)| ((*cause).to_owned(), Value::from(*frames)));
    let drops: Value = drops.collect::<serde_json::Map<_, _>>().into();
    drop(reception);
    let failure = port.transmitter.failure().or(port.listener.failure());
    json!({
        "name": port.name, "port": port.spec, "is_up": (port.is_up)(), "line_bps": port.line, "longest": longest(port.longest),
        "tx": counts(&tx), "rx": counts(&rx), "missing": missing, "drops": drops, "capture": captured, "flows": is_metered, "failure": failure
    })
}

/// Returns the longest frame with FCS that can be sent, if limited.
fn longest(longest: usize) -> Option<usize> {
    longest.checked_add(4).filter(|longest| *longest < usize::MAX / 2)
}

fn counts(figures: &TrafficMetrics) -> Value {
    json!({
        "frames": figures.frames, "bytes": figures.bytes, "frames_per_s": whole(figures.frame_rate),
        "l1_bps": whole((figures.byte_rate + 20.0 * figures.frame_rate) * 8.0)
    })
}

fn stream(tester: &Tester, at: usize, described: Option<&StreamSpec>) -> Value {
    let (flow, figures) = (tester.flow(at), tester.figures_since(at));
    let lately = |rate: f64| tester.is_paced(at).then(|| whole(rate));
    let state = match figures.transmit {
        Transmit::Started => "sending",
        Transmit::Paused => "paused",
        Transmit::Stopped => "stopped",
    };
    let rate = described.map_or_else(|| flow.stream.rate.to_string(), |own| own.text("rate").to_owned());
    let sizes = flow.stream.variants.iter().map(|variant| variant.frame.len() + 4);
    let (least, most) = (sizes.clone().min(), sizes.max());
    let known = |count: u64| (flow.is_counted && !flow.rx.is_empty()).then_some(count);
    // While a stream is sent some frames are in flight: only gaps below the highest number received are lost.
    let is_over = figures.transmit == Transmit::Stopped;
    let lost = if is_over { figures.tx.frames.saturating_sub(figures.distinct) } else { figures.missing };
    json!({
        "name": flow.name, "tx": flow.tx, "rx": flow.rx, "packet": flow.text.chars().take(MOST_TEXT).collect::<String>(),
        "least": least, "most": most, "rate": rate, "state": state, "sent": figures.tx.frames,
        "late": figures.late, "sent_per_s": lately(figures.tx.frame_rate), "received": known(figures.rx.frames),
        "received_per_s": known(0).and_then(|_| lately(figures.rx.frame_rate)), "lost": known(lost),
        "reordered": known(figures.reordered), "corrupted": known(figures.corrupted),
        "duplicated": known(figures.rx.frames.saturating_sub(figures.distinct)),
        "latency_ns": figures.latency.map(|(least, mean, most)| json!({"least": least, "mean": mean, "most": most,
            "p50": figures.percentiles.map(|both| both.0), "p99": figures.percentiles.map(|both| both.1)}))
    })
}

/// Rounds to the nearest integer.
pub(super) fn whole(rate: f64) -> u64 {
    rate.round() as u64
}
