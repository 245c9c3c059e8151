//! Request handlers without HTTP: method, path and document in, answer out. This module has the paths of the OTG model,
//! [`crate::native_api`] the others.

use crate::native_api;
pub use crate::native_api::openapi::openapi;
use crate::state::ServeState;
use crate::tester::{DrainingFlows, Neighbor, Tester};
use linerate_otg::control::{self, Metrics, Neighbors, State};
use linerate_otg::read::Faults;
use linerate_otg::{MODEL, MODELS, metrics};
use serde_json::{Value, json};

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub kind: &'static str,
    /// Body, never empty.
    pub body: Vec<u8>,
    /// Condition to wait for before the answer is sent.
    pub after: Option<Box<DrainingFlows>>,
}

/// Content type of JSON answers.
pub const JSON: &str = "application/json";

/// A path with a method.
pub struct ApiPath {
    /// HTTP method.
    pub method: &'static str,
    /// Absolute path.
    pub path: &'static str,
    /// Description, one sentence.
    pub about: &'static str,
    /// Content type of the answer.
    pub kind: &'static str,
    /// Query parameters.
    pub query: &'static [&'static str],
}

pub(crate) const fn path(method: &'static str, path: &'static str, about: &'static str) -> ApiPath {
    ApiPath { method, path, about, kind: JSON, query: &[] }
}

/// Paths of the OTG model.
const MODEL_PATHS: &[ApiPath] = &[
    path("GET", "/config", "The configuration, including later changes."),
    path("POST", "/config", "Sets a configuration atomically."),
    path("PATCH", "/config", "Changes the rate or the size of flows."),
    path("PATCH", "/config/append", "Adds flows."),
    path("PATCH", "/config/delete", "Removes flows."),
    path("POST", "/control/state", "Changes the state of flows, captures and links."),
    path("POST", "/control/action", "Always fails: actions are not supported."),
    path("POST", "/monitor/metrics", "Metrics of ports or flows."),
    path("POST", "/monitor/states", "Gateways of devices with their MAC addresses."),
    ApiPath { kind: BYTES, ..path("POST", "/monitor/capture", "Captured frames of a port, as pcap or pcapng.") },
    path("GET", "/capabilities/version", "Versions of the model and the program."),
];

const BYTES: &str = "application/octet-stream";
/// Server-sent events (HTML standard, section 9.2).
pub const EVENTS: &str = "text/event-stream";

/// Maximum number of values in a document, which take about 50 bytes each: a flow has about a hundred.
const MOST_VALUES: usize = 2 << 20;

impl Answer {
    pub(crate) fn json(status: u16, document: &Value) -> Self {
        Answer { status, ..Answer::of(JSON, document.to_string()) }
    }

    /// Returns a successful answer.
    pub(crate) fn of(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Answer { status: 200, kind, body: body.into(), after: None }
    }

    /// Sets the condition to wait for.
    pub(crate) fn after(self, after: Option<DrainingFlows>) -> Self {
        Answer { after: after.map(Box::new), ..self }
    }

    /// Returns an error in the format of the model.
    pub fn refuse(status: u16, errors: &[String]) -> Self {
        let kind = if status >= 500 { "internal" } else { "validation" };
        Answer::json(status, &json!({"code": status, "kind": kind, "errors": errors}))
    }
}

impl From<Faults> for Answer {
    fn from(faults: Faults) -> Self {
        Answer::refuse(400, &faults.lines())
    }
}

/// Returns all paths.
pub fn paths() -> impl Iterator<Item = &'static ApiPath> {
    MODEL_PATHS.iter().chain(native_api::PATHS)
}

/// Answers an authorised request; the answer may have a condition to wait for.
pub fn answer(desk: &ServeState, method: &str, path: &str, body: &[u8]) -> Answer {
    if !paths().any(|known| (known.method, known.path) == (method, path)) {
        let methods: Vec<&str> = paths().filter(|known| known.path == path).map(|known| known.method).collect();
        return match methods.is_empty() {
            true => Answer::refuse(404, &[format!("{path}: not found")]),
            false => Answer::refuse(405, &[format!("{path}: method not allowed; expected {}", methods.join(" and "))]),
        };
    }
    let asked = match (method, path) {
        // Query parameters, as a document.
        ("GET", _) if !body.is_empty() => read(body).map(|document| (document, "")),
        ("GET", _) => Ok((Value::Null, "")),
        ("POST", "/config") => text(body).map(|text| (Value::Null, text)),
        _ => read(body).map(|document| (document, "")),
    };
    let (document, text) = match asked {
        Ok(asked) => asked,
        Err(wrong) => return Answer::refuse(400, &[wrong]),
    };
    if native_api::is_traffic(method, path) && desk.measuring.is_running() {
        return Answer::refuse(
            409,
            &["a measurement is running; stop it first (POST /api/v1/measure/stop)".to_owned()],
        );
    }
    if path.starts_with("/api/v1/") {
        return native_api::act(desk, method, path, &document).unwrap_or_else(|refused| refused);
    }
    act(&mut desk.tester(), (method, path), &document, text).unwrap_or_else(Answer::from)
}

/// Returns the body as text, unless parsing it would take too much memory.
fn text(body: &[u8]) -> Result<&str, String> {
    let values = body.iter().filter(|byte| b",:[{".contains(byte)).count();
    if values > MOST_VALUES {
        return Err(format!("document has more than {MOST_VALUES} values"));
    }
    std::str::from_utf8(body).map_err(|error| format!("invalid JSON: {error}"))
}

/// Parses a body.
fn read(body: &[u8]) -> Result<Value, String> {
    serde_json::from_str(text(body)?).map_err(|error| format!("invalid JSON: {error}"))
}

/// Executes a request with a document, or with a configuration as text.
fn act(tester: &mut Tester, (method, path): (&str, &str), document: &Value, text: &str) -> Result<Answer, Faults> {
    let warned = |warnings: Vec<String>| Answer::json(200, &json!({"warnings": warnings}));
    Ok(match (method, path) {
        ("GET", "/config") => Answer::of(JSON, tester.text()),
        ("POST", "/config") => warned(tester.configure(text)?),
        ("PATCH", path) => {
            let change = match path {
                "/config/append" => control::append,
                "/config/delete" => control::delete,
                _ => control::update,
            };
            let known = serde_json::from_str(tester.text()).unwrap_or_default();
            let (changed, touched) = change(&known, document)?;
            let changed = changed.to_string();
            drop(known);
            warned(tester.change(&changed, &touched)?)
        }
        (_, "/control/state") => {
            let after = state(tester, &State::read(document)?)?;
            warned(Vec::new()).after(after)
        }
        (_, "/control/action") => {
            let mut faults = Faults::default();
            faults.add("choice", "actions are not supported");
            return Err(faults);
        }
        (_, "/monitor/metrics") => metrics(tester, &Metrics::read(document)?)?,
        (_, "/monitor/states") => states(tester, &Neighbors::read(document)?)?,
        (_, "/monitor/capture") => Answer::of(BYTES, tester.captured(&control::capture(document)?)?),
        _ => Answer::json(
            200,
            &json!({"api_spec_version": MODELS, "sdk_version": MODEL, "app_version": env!("CARGO_PKG_VERSION")}),
        ),
    })
}

fn state(tester: &mut Tester, state: &State) -> Result<Option<DrainingFlows>, Faults> {
    match state {
        State::Traffic(state, names) => {
            let flows = tester.flows(names)?;
            tester.transmit(*state, &flows)
        }
        State::Capture(is_on, names) => {
            let ports = tester.ports(names)?;
            tester.capture(*is_on, &ports);
            Ok(None)
        }
        State::Link(is_up, names) => {
            let ports = tester.ports(names)?;
            let mut faults = Faults::default();
            for figures in ports.into_iter().map(|port| tester.port_figures(port)) {
                if figures.is_up != *is_up {
                    let what = "setting the link state is not supported; use ip link set";
                    faults.add(&figures.name, what);
                }
            }
            if faults.is_empty() { Ok(None) } else { Err(faults) }
        }
        State::Protocols(is_on) => {
            tester.switch_devices(*is_on);
            Ok(None)
        }
    }
}

fn metrics(tester: &Tester, wanted: &Metrics) -> Result<Answer, Faults> {
    match wanted {
        Metrics::Ports(names, columns) => {
            let ports = tester.ports(names)?;
            let row = |port: usize| metrics::port(&tester.port_figures(port), columns);
            Ok(rows("port_metrics", ports.into_iter().map(row)))
        }
        Metrics::Flows(names, columns) => {
            let flows = tester.flows(names)?;
            let mut faults = Faults::default();
            let (counted, others): (Vec<usize>, Vec<usize>) =
                flows.into_iter().partition(|at| tester.flow(*at).is_counted);
            for at in others.into_iter().filter(|_| !names.is_empty()) {
                let what = "no metrics; set its metrics.enable";
                faults.add(&tester.flow(at).name, what);
            }
            if !faults.is_empty() {
                return Err(faults);
            }
            let row = |at: usize| {
                tester.mark_viewed(at);
                metrics::flow(tester.flow(at), &tester.figures(at), columns)
            };
            Ok(rows("flow_metrics", counted.into_iter().map(row)))
        }
    }
}

/// Serializes a list row by row: all rows as values would take ten times the memory of the text.
fn rows(choice: &str, rows: impl Iterator<Item = Value>) -> Answer {
    let mut body = format!("{{\"choice\":\"{choice}\",\"{choice}\":[");
    for (index, row) in rows.enumerate() {
        body += if index > 0 { "," } else { "" };
        body += &row.to_string();
    }
    Answer::of(JSON, body + "]}")
}

/// Lists gateways of devices; unresolved ones have no MAC address.
fn states(tester: &Tester, wanted: &Neighbors) -> Result<Answer, Faults> {
    let (choice, address) =
        if wanted.is_v4 { ("ipv4_neighbors", "ipv4_address") } else { ("ipv6_neighbors", "ipv6_address") };
    let row = |found: Neighbor<'_>| {
        let mut row = json!({"ethernet_name": found.ethernet, address: found.ip.to_string()});
        if let Some(mac) = found.mac {
            row["link_layer_address"] = mac.to_string().into();
        }
        row
    };
    Ok(rows(choice, tester.neighbors(wanted)?.into_iter().map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_description_is_current_and_has_every_path() {
        let described = openapi();
        let methods = described["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len());
        assert_eq!(methods.sum::<usize>(), paths().count());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.openapi.json");
        let text = serde_json::to_string_pretty(&described).unwrap() + "\n";
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(file).unwrap_or_default(), text, "UPDATE_DOCS=1 cargo test writes it");
    }
}
