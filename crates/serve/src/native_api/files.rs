//! Recordings: store, list, remove.

use super::captures;
use crate::recordings::{ROOM, RecordedFrame, Recording, decoded};
use crate::state::ServeState;
use linerate_otg::read::Faults;
use serde_json::{Value, json};

/// Maximum characters of a name.
const LONGEST_NAME: usize = 100;

/// Lists stored recordings, and the files of the server.
pub(super) fn list(desk: &ServeState) -> Value {
    let folder = desk.reader.as_ref().map(|reader| reader.names()).unwrap_or_default();
    let tester = desk.tester();
    let row = |(name, kept): (&str, &Recording)| json!({"name": name, "frames": kept.len(), "bytes": kept.bytes, "seconds": kept.seconds()});
    json!({"files": tester.recordings.all().map(row).collect::<Vec<_>>(), "folder": folder, "room": ROOM})
}

/// Stores or removes a recording.
///
/// # Errors
/// The document is invalid, or the recording cannot be read.
pub(super) fn act(desk: &ServeState, document: &Value) -> Result<Value, Faults> {
    let mut faults = Faults::default();
    let name = document["name"].as_str().unwrap_or_default().trim();
    if !(1..=LONGEST_NAME).contains(&name.chars().count()) {
        faults.add("name", format_args!("expected a name of 1 to {LONGEST_NAME} characters"));
        return Err(faults);
    }
    if document["do"] == "remove" {
        let mut tester = desk.tester();
        if tester.described().iter().any(|own| own.replay.as_deref() == Some(name)) {
            faults.add("name", format_args!("in use by a stream; remove that first"));
        } else if !tester.recordings.remove(name) {
            faults.add("name", format_args!("unknown file {name:?}"));
        }
        return if faults.is_empty() { Ok(json!({})) } else { Err(faults) };
    }
    let (key, frames) = frames(desk, document)?;
    let kept = frames.and_then(Recording::new).and_then(|recording| {
        let row =
            json!({"name": name, "frames": recording.len(), "bytes": recording.bytes, "seconds": recording.seconds()});
        desk.tester().recordings.keep(name, recording).map(|()| row)
    });
    kept.map_err(|what| {
        faults.add(key, what);
        faults
    })
}

/// Returns the frames that a document selects, and the key that selects them.
fn frames(desk: &ServeState, document: &Value) -> Result<(&'static str, Result<Vec<RecordedFrame>, String>), Faults> {
    let reader = || desk.reader.as_ref().ok_or_else(|| "reading files is not supported here".to_owned());
    if let Some(text) = document["base64"].as_str() {
        return Ok(("base64", reader().and_then(|reader| reader.read(decoded(text)?))));
    }
    if let Some(name) = document["open"].as_str() {
        return Ok(("open", reader().and_then(|reader| reader.open(name))));
    }
    if document["port"].is_null() {
        let mut faults = Faults::default();
        faults.add("", "expected base64 (a capture file), open (a file of the server) or port (its captured frames)");
        return Err(faults);
    }
    let tester = desk.tester();
    let asked = captures::CaptureRequest::read(&tester, document)?;
    let chosen = tester.port(asked.port).listener.reception().captured.chosen(&asked.filter);
    drop(tester);
    let frames = chosen.from(0, usize::MAX).into_iter().flat_map(|(_, frames)| frames);
    let recorded = frames.map(|frame| {
        if frame.bytes.len() < frame.wire as usize {
            return Err("frames are truncated; capture whole frames for replay".to_owned());
        }
        Ok(RecordedFrame { time: frame.time, bytes: frame.bytes.to_vec() })
    });
    Ok(("port", recorded.collect()))
}
