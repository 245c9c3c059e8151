//! Captures at a port: start, stop, list, show, export.

use super::frames;
use crate::tester::Tester;
use linerate_filter::Filter;
use linerate_otg::config::Format;
use linerate_otg::read::Faults;
use serde_json::{Value, json};

/// Maximum number of rows of a list.
const MOST_ROWS: u64 = 500;
/// Maximum characters of a filter.
const LONGEST_FILTER: usize = 500;
/// Number of frames checked per lock, so that the receiver can continue.
const AT_ONCE: usize = 2000;

/// Port and filter of a request.
pub(super) struct CaptureRequest {
    /// Index of the port.
    pub port: usize,
    /// Compiled filter.
    pub filter: Filter,
    /// Filter text.
    pub text: String,
}

impl CaptureRequest {
    /// Reads the fields `port` and `filter`.
    ///
    /// # Errors
    /// The port is unknown or the filter is invalid.
    pub(super) fn read(tester: &Tester, document: &Value) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let name = document["port"].as_str().unwrap_or_default();
        let port = tester.place(name);
        if port.is_none() {
            faults.add(
                "port",
                format_args!(
                    "unknown port {name:?}; expected one of {}",
                    tester.names().collect::<Vec<_>>().join(", ")
                ),
            );
        }
        let text = document["filter"].as_str().unwrap_or_default();
        if text.chars().count() > LONGEST_FILTER {
            faults.add("filter", format_args!("at most {LONGEST_FILTER} characters"));
            return Err(faults);
        }
        let filter = Filter::compile(text, 1).map_err(|error| faults.add("filter", error));
        match (port, filter) {
            (Some(port), Ok(filter)) => Ok(CaptureRequest { port, filter, text: text.to_owned() }),
            _ => Err(faults),
        }
    }
}

/// Starts, stops or clears a capture.
///
/// # Errors
/// The document is invalid.
pub(super) fn act(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let asked = CaptureRequest::read(tester, document)?;
    let mut reception = tester.port(asked.port).listener.reception();
    let captured = &mut reception.captured;
    match document["do"].as_str().unwrap_or_default() {
        "start" => {
            let is_ring = document["when_full"].as_str() != Some("stop");
            captured.start(document["slice"].as_u64().filter(|slice| *slice > 0), is_ring);
            captured.select(asked.filter, &asked.text);
        }
        "stop" => captured.stop(),
        "clear" if captured.is_on() => captured.empty(),
        "clear" => *captured = Default::default(),
        other => {
            let mut faults = Faults::default();
            faults.add("do", format_args!("{other:?}: expected start, stop or clear"));
            return Err(faults);
        }
    }
    Ok(json!({}))
}

/// Lists matching frames from a number on.
///
/// # Errors
/// The document is invalid.
pub(super) fn list(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let asked = CaptureRequest::read(tester, document)?;
    let most = document["count"].as_u64().unwrap_or(100).clamp(1, MOST_ROWS) as usize;
    let skip = document["skip"].as_u64().unwrap_or(0);
    let (mut rows, mut fitting, mut next) = (Vec::new(), 0, 0);
    loop {
        let reception = tester.port(asked.port).listener.reception();
        let Some((numbers, frames)) = reception.captured.from(next, AT_ONCE) else { break };
        for (number, frame) in numbers.zip(frames) {
            next = number + 1;
            if asked.filter.matches(&frame.bytes, frame.wire) {
                if fitting >= skip && rows.len() < most {
                    rows.push((number, frame.time, frame.wire, frame.bytes.clone()));
                }
                fitting += 1;
            }
        }
    }
    let row = |(number, time, wire, bytes): (u64, u64, u32, std::sync::Arc<[u8]>)| {
        let summary = frames::summary(&bytes, wire);
        json!({"number": number, "time_ns": time, "length": wire + 4, "summary": summary})
    };
    let reception = tester.port(asked.port).listener.reception();
    let (frames, dropped, is_on) = (reception.captured.len(), reception.captured.dropped, reception.captured.is_on());
    drop(reception);
    Ok(json!({
        "frames": frames, "fitting": fitting, "dropped": dropped, "is_on": is_on,
        "rows": rows.into_iter().map(row).collect::<Vec<_>>()
    }))
}

/// Returns a frame, decoded by layer.
///
/// # Errors
/// The frame does not exist or was dropped.
pub(super) fn frame(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let asked = CaptureRequest::read(tester, document)?;
    let number = document["number"].as_u64().unwrap_or(u64::MAX);
    let reception = tester.port(asked.port).listener.reception();
    let found = reception.captured.from(number, 1).and_then(|(mut numbers, mut frames)| {
        let frame = frames.next().filter(|_| numbers.next() == Some(number))?;
        Some((frame.time, frame.wire, frame.bytes.clone()))
    });
    drop(reception);
    let Some((time, wire, bytes)) = found else {
        let mut faults = Faults::default();
        faults.add("number", "unknown frame, or dropped for lack of space");
        return Err(faults);
    };
    let mut shown = frames::layers(&bytes);
    shown["number"] = number.into();
    shown["time_ns"] = time.into();
    shown["summary"] = frames::summary(&bytes, wire).into();
    Ok(shown)
}

/// Returns matching frames as a file.
///
/// # Errors
/// The document is invalid.
pub(super) fn file(tester: &Tester, document: &Value) -> Result<Vec<u8>, Faults> {
    let asked = CaptureRequest::read(tester, document)?;
    let format = if document["format"].as_str() == Some("pcap") { Format::Pcap } else { Format::Pcapng };
    // The bytes are shared with the capture, which continues.
    let copy = tester.port(asked.port).listener.reception().captured.chosen(&asked.filter);
    Ok(copy.file(format))
}
