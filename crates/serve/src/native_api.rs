//! Paths below `/api/v1`: functions that the Open Traffic Generator model does not cover.

mod captures;
mod files;
pub(crate) mod forms;
mod frames;
pub(crate) mod openapi;
mod rows;
mod snappi;
pub mod stream_spec;

pub use rows::{Page, figures};

use crate::api::{Answer, ApiPath, EVENTS, JSON, path};
use crate::state::ServeState;
use crate::tester::{DrainingFlows, Tester};
use crate::top::{FlowRow, LiveFlows};
use linerate_meter::End;
use linerate_otg::control::Traffic;
use linerate_otg::read::Faults;
use rows::whole;
use serde_json::{Value, json};
use stream_spec::{Fault, StreamSpec, read_all};

/// Paths of this API.
pub const PATHS: &[ApiPath] = &[
    ApiPath {
        query: &["from", "count"],
        ..path(
            "GET",
            "/api/v1/figures",
            "Figures of all ports and of some streams (from, count), and the state of the server.",
        )
    },
    ApiPath {
        kind: EVENTS,
        query: &["from", "count"],
        ..path("GET", "/api/v1/events", "The same, twice per second, as server-sent events.")
    },
    path("GET", "/api/v1/history", "Frame rates of all ports together in the last ten minutes, one point per second."),
    ApiPath {
        query: &["from", "count", "name"],
        ..path("GET", "/api/v1/streams", "The streams set through this API: all, some (from, count), or one (name).")
    },
    path("POST", "/api/v1/streams", "Replaces all streams atomically."),
    path("PATCH", "/api/v1/streams", "Adds or changes streams, and removes those named in remove; others continue."),
    path("POST", "/api/v1/check", "Checks a stream: returns its errors with their positions, or its first frames."),
    path("POST", "/api/v1/write", "Writes streams as a stream file, a command or a snappi script."),
    path("POST", "/api/v1/read", "Reads streams from any of these formats."),
    path("POST", "/api/v1/traffic", "Starts, stops, pauses or resumes streams, or clears counters."),
    path("POST", "/api/v1/rate", "Changes the rate of streams, also while they run."),
    path("POST", "/api/v1/capture", "Starts, stops or clears the capture of a port, with a filter."),
    path("POST", "/api/v1/capture/frames", "Lists captured frames that match a filter."),
    path("POST", "/api/v1/capture/frame", "One captured frame, decoded by layer."),
    ApiPath { kind: BYTES, ..path("POST", "/api/v1/capture/file", "Captured frames that match a filter, as pcapng.") },
    path("POST", "/api/v1/flows", "Starts or stops flow metering at a port, or lists its top flows."),
    path("GET", "/api/v1/measure", "The measurement: request, progress, and report so far."),
    path("POST", "/api/v1/measure", "Starts a measurement."),
    path("POST", "/api/v1/measure/estimate", "Estimates the duration of a measurement."),
    path("POST", "/api/v1/measure/stop", "Stops the measurement; results so far are kept."),
    path("GET", "/api/v1/measure/report.json", "The report of the last measurement."),
    ApiPath { kind: HTML, ..path("GET", "/api/v1/measure/report.html", "The same as one HTML file.") },
    path("GET", "/api/v1/files", "Recordings for replay by streams."),
    path(
        "POST",
        "/api/v1/files",
        "Stores a recording (a capture file, captured frames of a port, or a file of the server), or removes one.",
    ),
    path("GET", "/api/v1/log", "Recent changes and errors."),
    path("GET", "/api/v1/openapi.json", "This description of all paths."),
];

const BYTES: &str = "application/octet-stream";
const HTML: &str = "text/html; charset=utf-8";

/// Maximum bytes of a text in a measurement.
const LONGEST_TEXT: usize = 64 << 10;
/// Maximum number of flows listed.
const MOST_FLOWS: usize = 200;

/// Executes a request with a document.
pub fn act(desk: &ServeState, method: &str, path: &str, document: &Value) -> Result<Answer, Answer> {
    let name = path.strip_prefix("/api/v1/").unwrap_or_default();
    let done = || Ok(Answer::json(200, &json!({})));
    let refused = |(status, what): (u16, String)| Answer::refuse(status, &[what]);
    match (method, name) {
        ("GET", "figures" | "events") => Ok(Answer::json(200, &figures(desk, Page::read(document)?))),
        ("GET", "history") => Ok(Answer::json(200, &desk.tester().history())),
        ("GET", "streams") => list(&desk.tester(), document),
        ("GET", "log") => Ok(Answer::json(200, &desk.notes())),
        ("GET", "files") => Ok(Answer::json(200, &files::list(desk))),
        (_, "files") => Ok(Answer::json(200, &files::act(desk, document)?)),
        ("GET", "openapi.json") => Ok(Answer::json(200, &crate::api::openapi())),
        ("GET", "measure") => Ok(Answer::of(JSON, desk.measuring.whole())),
        ("GET", _) => {
            let is_html = name.ends_with(".html");
            let Some(report) = desk.measuring.report(is_html) else {
                return Err(Answer::refuse(404, &["no measurement yet".to_owned()]));
            };
            Ok(Answer::of(if is_html { HTML } else { JSON }, report))
        }
        (_, "check") => Ok(check(&desk.tester(), document)),
        (_, "write") => Ok(Answer::json(200, &write(&desk.tester(), document)?)),
        (_, "read") => {
            Ok(Answer::json(200, &forms::read(&desk.tester(), document["text"].as_str().unwrap_or_default())?))
        }
        (_, "capture") => Ok(Answer::json(200, &captures::act(&desk.tester(), document)?)),
        (_, "capture/frames") => Ok(Answer::json(200, &captures::list(&desk.tester(), document)?)),
        (_, "capture/frame") => Ok(Answer::json(200, &captures::frame(&desk.tester(), document)?)),
        (_, "capture/file") => Ok(Answer::of(BYTES, captures::file(&desk.tester(), document)?)),
        (_, "flows") => Ok(Answer::json(200, &flows(&desk.tester(), document)?)),
        (_, "measure/estimate") => {
            bounded(document)?;
            Ok(Answer::json(200, &desk.measuring.estimate(document).map_err(refused)?))
        }
        (_, "measure/stop") => {
            desk.measuring.stop();
            done()
        }
        (_, "measure") => {
            bounded(document)?;
            check_ports(&desk.tester(), document)?;
            desk.measuring.begin(desk.shared(), document).map_err(refused)?;
            done()
        }
        (_, "streams") => {
            let all = read_all(document)?;
            let gone = names(document, "remove")?;
            let mut tester = desk.tester();
            if method == "PATCH" {
                tester.amend(all, &gone)?
            } else {
                tester.set(all)?
            }
            done()
        }
        (_, "traffic") => {
            let after = traffic(&mut desk.tester(), document)?;
            Ok(done()?.after(after))
        }
        _ => {
            pace(&mut desk.tester(), document)?;
            done()
        }
    }
}

/// Returns whether a path changes traffic, which is not allowed during a measurement.
pub fn is_traffic(method: &str, path: &str) -> bool {
    let own = ["/api/v1/streams", "/api/v1/traffic", "/api/v1/rate"];
    method != "GET" && (own.contains(&path) || path.starts_with("/config") || path == "/control/state")
}

/// Serializes the streams row by row: all of them, or the requested ones.
fn list(tester: &Tester, document: &Value) -> Result<Answer, Answer> {
    let all = tester.described();
    let some = if let Some(name) = document["name"].as_str() {
        all.iter().position(|own| own.name == name).map_or(&[][..], |at| &all[at..=at])
    } else if document["from"].is_null() && document["count"].is_null() {
        all
    } else {
        &all[Page::read(document)?.places(all.len())]
    };
    let rows = some.iter().map(|one| one.json().to_string()).collect::<Vec<_>>().join(",");
    let body = format!("{{\"streams\":[{rows}],\"streams_in_all\":{}}}", all.len());
    Ok(Answer::of(JSON, body))
}

fn check(tester: &Tester, document: &Value) -> Answer {
    let count = document["frames"].as_u64().unwrap_or(5);
    let answer = |faults: Vec<Fault>, frames: Vec<Value>| {
        let faults: Vec<Value> = faults.iter().map(Fault::json).collect();
        Answer::json(200, &json!({"faults": faults, "frames": frames}))
    };
    let made = StreamSpec::read(&document["stream"])
        .and_then(|one| frames::first(&one, tester.line_of(&one.tx), &tester.recordings, count));
    match made {
        Ok(frames) => answer(Vec::new(), frames),
        Err(fault) => answer(vec![fault], Vec::new()),
    }
}

/// Writes the streams of the document, or the current ones.
fn write(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let form = document["form"].as_str().unwrap_or_default();
    if document.get("streams").is_some() {
        return forms::write(tester, &read_all(document)?, form);
    }
    forms::write(tester, tester.described(), form)
}

/// Checks that a measurement is not excessive: each packet is tested in each size and for each goal.
fn bounded(document: &Value) -> Result<(), Faults> {
    let mut faults = Faults::default();
    for (name, value) in document.as_object().into_iter().flatten() {
        let most = match name.as_str() {
            "packet" => 1000,
            "goal" => 10,
            _ => 100,
        };
        let values = value.as_array().map_or(std::slice::from_ref(value), |values| values);
        let texts = || values.iter().filter_map(Value::as_str);
        // Packets and services contain commas.
        let is_list = !["packet", "services"].contains(&name.as_str());
        let commas = if is_list { texts().map(|text| text.matches(',').count()).sum() } else { 0 };
        if values.len() + commas > most || texts().any(|text| text.len() > LONGEST_TEXT) {
            faults.add(name, format_args!("at most {most}, of {LONGEST_TEXT} characters each"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Checks that the ports of a measurement exist.
fn check_ports(tester: &Tester, document: &Value) -> Result<(), Faults> {
    let mut faults = Faults::default();
    for key in ["to", "check"] {
        let name = document[key].as_str().unwrap_or_default();
        if tester.place(name).is_none() {
            let known = tester.names().collect::<Vec<_>>().join(", ");
            faults.add(key, format_args!("unknown port {name:?}; expected one of {known}"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn names(document: &Value, key: &str) -> Result<Vec<String>, Faults> {
    let list = match &document[key] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    list.ok_or_else(|| {
        let mut faults = Faults::default();
        faults.add(key, "expected a list of names");
        faults
    })
}

fn traffic(tester: &mut Tester, document: &Value) -> Result<Option<DrainingFlows>, Faults> {
    let state = match document["do"].as_str().unwrap_or_default() {
        "start" => Traffic::Start,
        "stop" => Traffic::Stop,
        "pause" => Traffic::Pause,
        "resume" => Traffic::Resume,
        "clear" => {
            tester.clear();
            return Ok(None);
        }
        other => {
            let mut faults = Faults::default();
            faults.add("do", format_args!("{other:?}: expected start, stop, pause, resume or clear"));
            return Err(faults);
        }
    };
    let mut flows = tester.flows(&names(document, "streams")?)?;
    // Running streams continue, and stopped ones stay stopped.
    match state {
        Traffic::Start => flows.retain(|at| !tester.is_active(*at)),
        Traffic::Resume => flows.retain(|at| tester.is_active(*at)),
        _ => {}
    }
    tester.transmit(state, &flows)
}

fn pace(tester: &mut Tester, document: &Value) -> Result<(), Faults> {
    let names = names(document, "streams")?;
    let Some(rate) = document["rate"].as_str() else {
        let mut faults = Faults::default();
        faults.add("rate", "expected a rate, such as \"250kpps\"");
        return Err(faults);
    };
    tester.pace(&names, rate)
}

fn flows(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let asked = captures::CaptureRequest::read(tester, document)?;
    // Allocates before locking the receiver.
    let fresh = (document["do"] == "start").then(|| Box::new(LiveFlows::new(tester.secret())));
    let mut reception = tester.port(asked.port).listener.reception();
    if fresh.is_some() || document["do"] == "stop" {
        reception.top = fresh;
    }
    let Some(top) = &reception.top else { return Ok(json!({"is_on": false, "rows": []})) };
    let most = document["count"].as_u64().map_or(50, |count| (count as usize).clamp(1, MOST_FLOWS));
    let (greatest, kept, evicted_groups) = top.greatest(most, document["by"] == "rate");
    drop(reception);
    let end = |end: &End| json!({"address": end.address.to_string(), "port": end.port});
    let row = |row: &FlowRow| {
        let FlowRow { ends, protocol, packets, bytes, first, last, lately, .. } = row;
        json!({
            "from": end(&ends[0]), "to": end(&ends[1]), "protocol": protocol, "packets": packets[0],
            "bytes": bytes[0], "packets_reverse": packets[1], "bytes_reverse": bytes[1],
            "packets_per_s": whole(lately.packets[0]), "bps": whole(lately.bits[0]),
            "packets_per_s_back": whole(lately.packets[1]), "bps_back": whole(lately.bits[1]),
            "first_ns": first.0, "last_ns": last.0,
            "state": if row.end == linerate_meter::EndReason::Active { "active" } else { row.end.name() }
        })
    };
    Ok(
        json!({"is_on": true, "flows": kept, "evicted_groups": evicted_groups, "rows": greatest.iter().map(row).collect::<Vec<_>>()}),
    )
}
