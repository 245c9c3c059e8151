//! Metrics in answers.

use crate::flow::{Flow, Latency};
use linerate_generate::stream::Mark;
use serde_json::{Map, Value, json};

/// Metrics of a port.
#[derive(Clone, Debug, Default)]
pub struct PortMetrics {
    /// Name in the configuration.
    pub name: String,
    /// Location.
    pub location: String,
    /// True if its link is up.
    pub is_up: bool,
    /// True if frames are captured there.
    pub is_capturing: bool,
    /// True if anything is sent there.
    pub is_sending: bool,
    /// Frames and bytes, FCS included, sent.
    pub tx: TrafficMetrics,
    /// Frames and bytes, FCS included, received.
    pub rx: TrafficMetrics,
    /// Bits per second, if known.
    pub speed: Option<f64>,
}

/// Frames, bytes and rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficMetrics {
    /// Number of frames.
    pub frames: u64,
    /// Bytes, FCS included.
    pub bytes: u64,
    /// Recent frames per second.
    pub frame_rate: f64,
    /// Recent bytes per second.
    pub byte_rate: f64,
}

/// Transmit state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transmit {
    /// Stopped: not started, or ended and its last frame sent.
    #[default]
    Stopped,
    /// Sending.
    Started,
    /// Paused.
    Paused,
}

/// Metrics of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowMetrics {
    /// Transmit state.
    pub transmit: Transmit,
    /// Frames sent.
    pub tx: TrafficMetrics,
    /// Frames received at the flow's receive ports; duplicates count twice.
    pub rx: TrafficMetrics,
    /// Distinct frames received.
    pub distinct: u64,
    /// Frames received after one with a greater number.
    pub reordered: u64,
    /// Frames received with a wrong checksum.
    pub corrupted: u64,
    /// Frames missing below the highest number.
    pub missing: u64,
    /// Packets sent late.
    pub late: u64,
    /// Receive times of the first and the last frame, UTC nanoseconds.
    pub span: Option<(u64, u64)>,
    /// Minimum, mean and maximum latency in nanoseconds.
    pub latency: Option<(i64, i64, i64)>,
    /// Median and 99th percentile of the latency in nanoseconds.
    pub percentiles: Option<(i64, i64)>,
    /// Line rate of its transmit port in bits per second, if known.
    pub line: Option<f64>,
}

/// Columns of port metrics.
pub const PORT_COLUMNS: &[&str] = &[
    "name",
    "location",
    "link",
    "capture",
    "transmit",
    "frames_tx",
    "bytes_tx",
    "frames_tx_rate",
    "bytes_tx_rate",
    "frames_rx",
    "bytes_rx",
    "frames_rx_rate",
    "bytes_rx_rate",
    "speed",
];
/// Columns of flow metrics.
pub const FLOW_COLUMNS: &[&str] = &[
    "name",
    "port_tx",
    "port_rx",
    "transmit",
    "frames_tx",
    "bytes_tx",
    "frames_tx_rate",
    "tx_rate_bytes",
    "tx_rate_bps",
    "tx_rate_kbps",
    "tx_rate_mbps",
    "tx_l1_rate_bps",
    "tx_l1_rate_kbps",
    "tx_l1_rate_mbps",
    "frames_rx",
    "bytes_rx",
    "frames_rx_rate",
    "rx_rate_bytes",
    "rx_rate_bps",
    "rx_rate_kbps",
    "rx_rate_mbps",
    "rx_l1_rate_bps",
    "rx_l1_rate_kbps",
    "rx_l1_rate_mbps",
    "loss",
    "timestamps",
    "latency",
];

/// Preamble, start delimiter and gap of a frame, in bytes.
const AROUND: f64 = 20.0;

/// Returns the row of a port.
pub fn port(figures: &PortMetrics, columns: &[String]) -> Value {
    let mut row = Map::new();
    row.insert("name".into(), figures.name.clone().into());
    let mut put = |name: &str, value: Value| {
        // The newest column only on request: older clients reject unknown ones.
        let is_new = name == "speed";
        if columns.iter().any(|column| column == name) || columns.is_empty() && !is_new {
            row.insert(name.to_owned(), value);
        }
    };
    put("location", figures.location.clone().into());
    put("link", if figures.is_up { "up" } else { "down" }.into());
    put("capture", if figures.is_capturing { "started" } else { "stopped" }.into());
    put("transmit", if figures.is_sending { "started" } else { "stopped" }.into());
    for (end, own) in [("tx", &figures.tx), ("rx", &figures.rx)] {
        put(&format!("frames_{end}"), own.frames.to_string().into());
        put(&format!("bytes_{end}"), own.bytes.to_string().into());
        put(&format!("frames_{end}_rate"), rounded(own.frame_rate));
        put(&format!("bytes_{end}_rate"), rounded(own.byte_rate));
    }
    if let Some(speed) = figures.speed {
        put("speed", ((speed / 8e3) as u64).into());
    }
    Value::Object(row)
}

/// Returns the row of a flow.
pub fn flow(flow: &Flow, figures: &FlowMetrics, columns: &[String]) -> Value {
    let mut row = Map::new();
    row.insert("name".into(), flow.name.clone().into());
    row.insert("port_tx".into(), flow.tx.clone().into());
    row.insert("port_rx".into(), flow.rx.join(",").into());
    let mut put = |name: &str, value: Value| {
        if columns.is_empty() || columns.iter().any(|column| column == name) {
            row.insert(name.to_owned(), value);
        }
    };
    let transmit = match figures.transmit {
        Transmit::Stopped => "stopped",
        Transmit::Started => "started",
        Transmit::Paused => "paused",
    };
    put("transmit", transmit.into());
    for (end, own) in [("tx", &figures.tx), ("rx", &figures.rx)] {
        put(&format!("frames_{end}"), own.frames.to_string().into());
        put(&format!("bytes_{end}"), own.bytes.to_string().into());
        put(&format!("frames_{end}_rate"), rounded(own.frame_rate));
        let l1 = own.byte_rate + own.frame_rate * AROUND;
        for (name, bytes) in [("rate", own.byte_rate), ("l1_rate", l1)] {
            if name == "rate" {
                put(&format!("{end}_rate_bytes"), rounded(bytes));
            }
            for (unit, of) in [("bps", 1.0), ("kbps", 1e3), ("mbps", 1e6)] {
                put(&format!("{end}_{name}_{unit}"), rounded(bytes * 8.0 / of));
            }
        }
    }
    if flow.loss {
        put("loss", percent(expected(flow, figures), figures.distinct).into());
    }
    if let Some((first, last)) = figures.span.filter(|_| flow.timestamps) {
        put("timestamps", json!({"first_timestamp_ns": first, "last_timestamp_ns": last}));
    }
    if let (Some(mode), Some(all)) = (flow.latency, figures.latency) {
        let (least, mean, most) = less(all, mode, figures);
        put("latency", json!({"minimum_ns": least, "maximum_ns": most, "average_ns": mean}));
    }
    Value::Object(row)
}

/// Returns the number of frames expected so far. While a flow is sending, some frames are in flight: only those up to
/// the highest number received are expected. If none was received, or frames have no numbers, all frames sent are
/// expected.
fn expected(flow: &Flow, figures: &FlowMetrics) -> u64 {
    let is_known = flow.stream.mark == Mark::Trailer && figures.distinct > 0;
    match figures.transmit {
        Transmit::Started | Transmit::Paused if is_known => figures.distinct + figures.missing,
        _ => figures.tx.frames,
    }
}

/// Subtracts the serialization time of a frame for store-and-forward latency, if the line rate is known.
fn less(all: (i64, i64, i64), mode: Latency, figures: &FlowMetrics) -> (i64, i64, i64) {
    let nanos = match (mode, figures.line) {
        (Latency::StoreForward, Some(line)) if figures.rx.frames > 0 => {
            figures.rx.bytes as f64 / figures.rx.frames as f64 * 8e9 / line
        }
        _ => 0.0,
    };
    let less = |latency: i64| latency - nanos as i64;
    (less(all.0), less(all.1), less(all.2))
}

/// Returns the percentage of frames lost. Numbers below 0.0001 would be written with an exponent, which YAML clients
/// parse as text: any loss is at least that.
fn percent(sent: u64, received: u64) -> f64 {
    if sent == 0 { 0.0 } else { (1e6 * sent.saturating_sub(received) as f64 / sent as f64).ceil() / 1e4 }
}

fn rounded(rate: f64) -> Value {
    ((rate * 1000.0).round() / 1000.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::flow::Setup;

    fn flow_of(size: u64) -> Flow {
        let document = json!({"ports": [{"name": "p1"}], "flows": [{"name": "f1", "tx_rx": {"port": {"tx_name": "p1"}},
            "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}], "size": {"fixed": size},
            "metrics": {"enable": true, "loss": true, "timestamps": true, "latency": {"enable": true}}}]});
        let read = Config::read(&document, &Setup::default());
        read.unwrap_or_else(|faults| panic!("{:?}", faults.lines())).flows.remove(0)
    }

    #[test]
    fn frames_in_flight_are_not_lost() {
        let (flow, mut figures) = (flow_of(128), FlowMetrics::default());
        figures.tx.frames = 1000;
        (figures.distinct, figures.missing) = (891, 9);
        for (transmit, loss) in [(Transmit::Started, 1.0), (Transmit::Paused, 1.0), (Transmit::Stopped, 10.9)] {
            figures.transmit = transmit;
            assert_eq!(super::flow(&flow, &figures, &[])["loss"], loss, "{transmit:?}");
        }
        // No frame was received.
        (figures.transmit, figures.distinct, figures.missing) = (Transmit::Started, 0, 0);
        assert_eq!(super::flow(&flow, &figures, &[])["loss"], 100.0);
    }

    #[test]
    fn columns_match_those_in_answers() {
        let columns = |row: Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let sorted = |known: &[&str]| {
            let mut known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
            known.sort();
            known
        };
        let figures = FlowMetrics { span: Some((1, 2)), latency: Some((1, 2, 3)), ..FlowMetrics::default() };
        let all = sorted(FLOW_COLUMNS);
        assert_eq!(columns(flow(&flow_of(128), &figures, &all)), all);
        assert_eq!(columns(flow(&flow_of(128), &figures, &[])), all);
        let (figures, all) = (PortMetrics { speed: Some(1e9), ..PortMetrics::default() }, sorted(PORT_COLUMNS));
        assert_eq!(columns(port(&figures, &all)), all);
    }
}
