//! A stream as a line of JSON: only numbers and addresses, so that nothing needs escaping.

use linerate_burst::Nanos;
use linerate_transport::follow::{StreamInfo, StreamSummary, Tally};
use std::fmt::Write;

/// Returns the start of a stream, without the closing brace.
pub(super) fn begun(about: &StreamInfo) -> String {
    let StreamInfo { stream, connection, ends, is_inner, began } = about;
    let mut line = format!(r#"{{"stream":{stream},"connection":{connection}"#);
    for (name, end) in [("src", ends.from), ("dst", ends.to)] {
        let _ = write!(line, r#","{name}":"{}","{name}_port":{}"#, end.ip(), end.port());
    }
    let _ = write!(line, r#","inner":{is_inner},"began":"{}""#, began.name());
    line
}

/// Returns the summary of a stream, with its file, if there are files, and the file's length if it is incomplete.
pub(super) fn ended(summary: &StreamSummary, file: Option<Option<&str>>, written: Option<u64>) -> String {
    let StreamSummary { about, other, ending, times, tally, gaps, missing_at_end } = summary;
    let mut line = begun(about);
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(line, r#","{name}":{value}"#);
    };
    match other {
        Some(other) => add("other", other),
        None => add("other", &"null"),
    }
    add("ended", &format_args!(r#""{}""#, ending.name()));
    if let Some((Nanos(first), Nanos(last))) = times {
        add("first_time_ns", first);
        add("last_time_ns", last);
    }
    let Tally { bytes, gaps: _, missing, unlisted, repeated, differing, late, before, beyond, far } = tally;
    add("length", &(bytes + missing));
    for (name, value) in [
        ("bytes", bytes),
        ("missing", missing),
        ("missing_at_end", missing_at_end),
        ("repeated", repeated),
        ("differing", differing),
        ("late", late),
        ("before", before),
        ("beyond", beyond),
        ("far", far),
    ] {
        add(name, value);
    }
    line.push_str(r#","gaps":["#);
    for (number, gap) in gaps.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let _ = write!(line, "{comma}[{},{}]", gap.start, gap.end - gap.start);
    }
    line.push(']');
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(line, r#","{name}":{value}"#);
    };
    add("gaps_unlisted", unlisted);
    match file {
        Some(Some(file)) => add("file", &format_args!(r#""{file}""#)),
        Some(None) => add("file", &"null"),
        None => {}
    }
    if let Some(written) = written {
        add("written", &written);
    }
    line.push_str("}\n");
    line
}
