//! What the paths below `/api/v1` do: all that the model of Open Traffic Generators has no words for.

mod captures;
pub(crate) mod describe;
pub mod described;
mod files;
pub(crate) mod forms;
mod frames;
mod rows;
mod snappi;

pub use rows::{Page, figures};

use crate::api::{Answer, EVENTS, JSON, Path, path};
use crate::desk::Desk;
use crate::tester::{Settling, Tester};
use crate::top::{Row, Top};
use described::{Described, Fault, read_all};
use linerate_meter::End;
use linerate_otg::control::Traffic;
use linerate_otg::read::Faults;
use rows::whole;
use serde_json::{Value, json};

/// Its paths.
pub const PATHS: &[Path] = &[
    Path {
        query: &["from", "count"],
        ..path(
            "GET",
            "/api/v1/figures",
            "Figures of all ports and of some streams (from, count), and what else goes on.",
        )
    },
    Path {
        kind: EVENTS,
        query: &["from", "count"],
        ..path("GET", "/api/v1/events", "The same, twice a second, as server-sent events.")
    },
    path("GET", "/api/v1/history", "Frames a second of all ports together in the last ten minutes, a point a second."),
    Path {
        query: &["from", "count", "name"],
        ..path("GET", "/api/v1/streams", "The streams as they were set here: all, some (from, count), or one (name).")
    },
    path("POST", "/api/v1/streams", "Sets streams instead of all there were: all of them or none."),
    path("PATCH", "/api/v1/streams", "Adds or changes streams, and removes those named in remove; others go on."),
    path("POST", "/api/v1/check", "Says what is wrong with a stream, and where, or shows its first frames."),
    path("POST", "/api/v1/write", "Writes streams as a stream file, a command or a snappi script."),
    path("POST", "/api/v1/read", "Reads streams from any of these."),
    path("POST", "/api/v1/traffic", "Has streams start, stop, pause, resume, or counters clear."),
    path("POST", "/api/v1/rate", "Has streams go at another rate, also while they are sent."),
    path("POST", "/api/v1/capture", "Starts, stops or clears the capture of a port, with a filter."),
    path("POST", "/api/v1/capture/frames", "Lists captured frames that fit a filter."),
    path("POST", "/api/v1/capture/frame", "One captured frame, in layers."),
    Path { kind: BYTES, ..path("POST", "/api/v1/capture/file", "Captured frames that fit a filter, as pcapng.") },
    path("POST", "/api/v1/flows", "Starts or stops the metering of a port, or lists its greatest flows."),
    path("GET", "/api/v1/measure", "The measurement: what was asked for, how far it is, the report so far."),
    path("POST", "/api/v1/measure", "Begins a measurement."),
    path("POST", "/api/v1/measure/estimate", "Says how long a measurement will take."),
    path("POST", "/api/v1/measure/stop", "Ends the measurement, with what is known by then."),
    path("GET", "/api/v1/measure/report.json", "The report of the last measurement."),
    Path { kind: HTML, ..path("GET", "/api/v1/measure/report.html", "The same as one HTML file.") },
    path("GET", "/api/v1/files", "The recordings that streams may replay."),
    path(
        "POST",
        "/api/v1/files",
        "Keeps a recording: a capture file, what was captured at a port, or a file of the server; or removes one.",
    ),
    path("GET", "/api/v1/log", "What was done, and what was refused, lately."),
    path("GET", "/api/v1/openapi.json", "This description of all paths."),
];

const BYTES: &str = "application/octet-stream";
const HTML: &str = "text/html; charset=utf-8";

/// Bytes of a text of a measurement.
const LONGEST_TEXT: usize = 64 << 10;
/// Flows that are listed at most.
const MOST_FLOWS: usize = 200;

/// Does what a document says, where nothing else is to be asked.
pub fn act(desk: &Desk, method: &str, path: &str, document: &Value) -> Result<Answer, Answer> {
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
                return Err(Answer::refuse(404, &["nothing was measured yet".to_owned()]));
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
            known_ports(&desk.tester(), document)?;
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

/// Whether a path changes what is sent: none of these while something is measured.
pub fn is_traffic(method: &str, path: &str) -> bool {
    let own = ["/api/v1/streams", "/api/v1/traffic", "/api/v1/rate"];
    method != "GET" && (own.contains(&path) || path.starts_with("/config") || path == "/control/state")
}

/// The streams, of which one at a time is a tree of values: all of them, or those that are asked for.
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
    let made = Described::read(&document["stream"])
        .and_then(|one| frames::first(&one, tester.line_of(&one.tx), &tester.recordings, count));
    match made {
        Ok(frames) => answer(Vec::new(), frames),
        Err(fault) => answer(vec![fault], Vec::new()),
    }
}

/// Streams of the document, or else those that there are.
fn write(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let form = document["form"].as_str().unwrap_or_default();
    if document.get("streams").is_some() {
        return forms::write(tester, &read_all(document)?, form);
    }
    forms::write(tester, tester.described(), form)
}

/// Sees that a measurement is not of more than anybody wants: each packet is made in each size, and each goal looked for.
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
        // Packets and services have commas of their own.
        let is_list = !["packet", "services"].contains(&name.as_str());
        let commas = if is_list { texts().map(|text| text.matches(',').count()).sum() } else { 0 };
        if values.len() + commas > most || texts().any(|text| text.len() > LONGEST_TEXT) {
            faults.add(name, format_args!("at most {most} here, and {LONGEST_TEXT} characters each"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Sees that a measurement is made at ports that there are.
fn known_ports(tester: &Tester, document: &Value) -> Result<(), Faults> {
    let mut faults = Faults::default();
    for key in ["to", "check"] {
        let name = document[key].as_str().unwrap_or_default();
        if tester.place(name).is_none() {
            let known = tester.names().collect::<Vec<_>>().join(", ");
            faults.add(key, format_args!("no port {name:?} here; there is {known}"));
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
        faults.add(key, "a list of names belongs here");
        faults
    })
}

fn traffic(tester: &mut Tester, document: &Value) -> Result<Option<Settling>, Faults> {
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
            faults.add("do", format_args!("{other:?}: start, stop, pause, resume or clear"));
            return Err(faults);
        }
    };
    let mut flows = tester.flows(&names(document, "streams")?)?;
    // What is sent goes on, and what is stopped stays so.
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
        faults.add("rate", "a rate belongs here, as in \"250kpps\"");
        return Err(faults);
    };
    tester.pace(&names, rate)
}

fn flows(tester: &Tester, document: &Value) -> Result<Value, Faults> {
    let asked = captures::Asked::read(tester, document)?;
    // Its memory is taken before whoever receives is held up.
    let fresh = (document["do"] == "start").then(|| Box::new(Top::new(tester.secret())));
    let mut heard = tester.port(asked.port).listener.heard();
    if fresh.is_some() || document["do"] == "stop" {
        heard.top = fresh;
    }
    let Some(top) = &heard.top else { return Ok(json!({"is_on": false, "rows": []})) };
    let most = document["count"].as_u64().map_or(50, |count| (count as usize).clamp(1, MOST_FLOWS));
    let (greatest, kept, let_go) = top.greatest(most, document["by"] == "rate");
    drop(heard);
    let end = |end: &End| json!({"address": end.address.to_string(), "port": end.port});
    let row = |row: &Row| {
        let Row { ends, protocol, packets, bytes, first, last, lately, .. } = row;
        json!({
            "from": end(&ends[0]), "to": end(&ends[1]), "protocol": protocol, "packets": packets[0],
            "bytes": bytes[0], "packets_back": packets[1], "bytes_back": bytes[1],
            "packets_per_s": whole(lately.packets[0]), "bps": whole(lately.bits[0]),
            "packets_per_s_back": whole(lately.packets[1]), "bps_back": whole(lately.bits[1]),
            "first_ns": first.0, "last_ns": last.0,
            "state": if row.end == linerate_meter::EndReason::Active { "goes on" } else { row.end.name() }
        })
    };
    Ok(json!({"is_on": true, "flows": kept, "let_go": let_go, "rows": greatest.iter().map(row).collect::<Vec<_>>()}))
}
