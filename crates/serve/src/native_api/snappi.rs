//! Streams as Open Traffic Generator configurations, in a script for the client `snappi`.
//!
//! A stream is written as headers, fields and patterns of the model; then that is read back like any client's
//! configuration, and its frames are compared with those of the stream. Streams with any difference are rejected, so
//! that scripts are never wrong.

use super::forms::{BEGIN, END};
use super::stream_spec::{StreamSpec, streams};
use crate::tester::Tester;
use linerate_generate::stream::{IndexSelection, Mark, Shape, Stream};
use linerate_generate::trailer::Key;
use linerate_generate::{Layer, Rate};
use linerate_headers::named::{Field, Kind};
use linerate_headers::{Layers, coverage, dissect};
use linerate_otg::config::Config;
use linerate_otg::flow::Setup;
use linerate_otg::headers::{HEADERS, Header};
use linerate_otg::read::Faults;
use serde_json::{Map, Value, json};

/// Number of frames compared per stream.
const COMPARED: u64 = 300;
/// Maximum number of values listed individually per field.
const MOST_VALUES: u64 = 1024;

/// Writes a script that sends these streams.
pub(super) fn script(tester: &Tester, all: &[StreamSpec], faults: &mut Faults) -> String {
    let document = document(tester, all, faults);
    let text = literal(&document);
    format!(
        "# pip install snappi; python streams.py http://:TOKEN@127.0.0.1:8443\n\
         import sys, time, snappi\n\n{BEGIN}{text}{END}\n\n\
         api = snappi.api(location=sys.argv[1])\nconfig = api.config()\nconfig.deserialize(CONFIG)\napi.set_config(config)\n\n\n\
         def transmit(what):\n    state = api.control_state()\n    state.traffic.flow_transmit.state = what\n    \
         api.set_control_state(state)\n\n\n\
         transmit(\"start\")\nrequest = api.metrics_request()\nrequest.flow.flow_names = []\n\
         while any(flow.transmit != \"stopped\" for flow in api.get_metrics(request).flow_metrics):\n    time.sleep(0.5)\n\
         # Returns when all frames have arrived.\n\
         transmit(\"stop\")\n\
         for flow in api.get_metrics(request).flow_metrics:\n    print(flow.name, flow.frames_tx, flow.frames_rx)\n"
    )
}

/// Escapes JSON for a raw Python string: it cannot end the literal, and contains no invisible or misleading characters.
fn literal(document: &Value) -> String {
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside of strings JSON is plain ASCII without such quotes.
        match c {
            ' '..='~' if c != '\'' => safe.push(c),
            '\n' => safe.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe += &format!("\\u{unit:04x}")),
        }
    }
    safe
}

fn document(tester: &Tester, all: &[StreamSpec], faults: &mut Faults) -> Value {
    let mut flows = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let path = format!("streams[{index}]");
        let made = streams(&[one], tester.line_of(&one.tx), &tester.recordings);
        let Some(stream) = made.ok().and_then(|mut made| made.pop()) else {
            faults.add(&path, "the stream itself is invalid");
            continue;
        };
        match flow(one, &stream) {
            Ok(flow) if is_same(&flow, one, &stream) => flows.push(flow),
            Ok(_) => faults.add(&path, cannot("frames with unusual lengths, checksums or additional layers")),
            Err(what) => faults.add(&path, cannot(&what)),
        }
    }
    let mut names: Vec<&str> = all.iter().flat_map(|one| one.rx.iter().chain([&one.tx])).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let ports: Vec<Value> = names.iter().map(|name| json!({"name": name, "location": name})).collect();
    json!({"ports": ports, "flows": flows})
}

fn cannot(what: &str) -> String {
    format!("the model cannot express {what}; save a stream file")
}

/// Converts a stream to a flow of the model, or returns what the model cannot express.
fn flow(one: &StreamSpec, stream: &Stream) -> Result<Value, String> {
    let sizes: Vec<usize> = stream.variants.iter().map(|variant| variant.frame.len() + 4).collect();
    let [size] = sizes[..] else { return Err(format!("{} sizes in one stream (size)", sizes.len())) };
    let Rate::Frames(pps) = stream.rate else {
        let Rate::Bits(bits, Layer::L1) = stream.rate else {
            return Err("a layer 2 or unlimited rate (rate; pps and bpsl1 are supported)".to_owned());
        };
        return finished(one, stream, size, json!({"choice": "bps", "bps": bits.round() as u64}));
    };
    finished(one, stream, size, json!({"choice": "pps", "pps": pps.round() as u64}))
}

fn finished(one: &StreamSpec, stream: &Stream, size: usize, rate: Value) -> Result<Value, String> {
    let duration = match (stream.shape.clone(), stream.count, stream.span.length) {
        (Shape::Even, None, None) => json!({"choice": "continuous", "continuous": {"delay": delay(stream)}}),
        (Shape::Even, Some(count), None) => {
            json!({"choice": "fixed_packets", "fixed_packets": {"packets": count, "delay": delay(stream)}})
        }
        (Shape::Even, None, Some(length)) => {
            json!({"choice": "fixed_seconds", "fixed_seconds": {"seconds": length as f64 / 1e9, "delay": delay(stream)}})
        }
        (Shape::Bursts { frames, gap }, count, None)
            if count.is_none_or(|count| count % frames == 0) && stream.span.start == 0 =>
        {
            let gap = json!({"choice": "nanoseconds", "nanoseconds": gap as f64});
            let bursts = count.map_or(0, |count| count / frames);
            json!({"choice": "burst", "burst": {"bursts": bursts, "packets": frames, "inter_burst_gap": gap}})
        }
        (Shape::Poisson { .. }, ..) => return Err("gaps of a Poisson process (poisson)".to_owned()),
        (Shape::Recorded(_), ..) => return Err("gaps of a recording (replay)".to_owned()),
        (Shape::Even, ..) => return Err("an end by both packets and time (count and for)".to_owned()),
        (Shape::Bursts { .. }, ..) => {
            return Err("bursts with start, for, or a count that is not a multiple (burst)".to_owned());
        }
    };
    let is_counted = stream.mark != Mark::None;
    Ok(json!({
        "name": one.name, "tx_rx": {"choice": "port", "port": {"tx_name": one.tx, "rx_names": one.rx}},
        "packet": packet(stream)?, "size": {"choice": "fixed", "fixed": size}, "rate": rate, "duration": duration,
        "metrics": {"enable": is_counted, "loss": is_counted}
    }))
}

fn delay(stream: &Stream) -> Value {
    json!({"choice": "nanoseconds", "nanoseconds": stream.span.start as f64})
}

/// Converts the headers of its frames.
fn packet(stream: &Stream) -> Result<Vec<Value>, String> {
    let variant = &stream.variants[0];
    let frame = &variant.frame;
    let mut layers = Layers::new();
    dissect(stream.link, frame, &mut layers);
    let mut packet = Vec::new();
    for at in coverage::placed(frame, &layers) {
        let bytes = frame.get(at.offset..at.offset + at.length);
        let known = bytes.and_then(|bytes| Some((bytes, Kind::of(at.protocol, bytes)?)));
        let (bytes, kind) = known.ok_or_else(|| format!("the layer {}", at.protocol.name()))?;
        let row = HEADERS.iter().find(|row| row.name == kind.name());
        let row = row.ok_or_else(|| format!("the layer {}", kind.name()))?;
        packet.push(json!({"choice": row.otg, row.otg: fields(row, kind, stream, at.offset, bytes)?}));
    }
    Ok(packet)
}

fn fields(row: &Header, kind: &Kind, stream: &Stream, offset: usize, bytes: &[u8]) -> Result<Value, String> {
    let mut fields = Map::new();
    for own in row.fields.iter().filter(|own| !own.name.is_empty() && own.usual.is_some()) {
        let (name, mask) = own.name.split_once("&0x").unwrap_or((own.name, ""));
        let Some(field) = kind.field(name, bytes) else { continue };
        let value = match u128::from_str_radix(mask, 16) {
            Ok(mask) => {
                let bits = field.get(bytes).map(|value| (value & mask) >> mask.trailing_zeros());
                let bits = bits.and_then(|bits| u64::try_from(bits).ok());
                bits.map(|bits| json!({"choice": "value", "value": bits}))
            }
            Err(_) => pattern(field, stream, offset, bytes),
        };
        let value = value.ok_or_else(|| format!("the values of {name} in {}", kind.name()))?;
        fields.insert(own.otg.to_owned(), value);
    }
    Ok(Value::Object(fields))
}

/// Converts the values of a field.
fn pattern(field: &Field, stream: &Stream, offset: usize, bytes: &[u8]) -> Option<Value> {
    let bit = offset * 8 + field.start(bytes)?;
    let shown = |value: u128| match field.format {
        linerate_headers::named::Format::Mac
        | linerate_headers::named::Format::Ipv4
        | linerate_headers::named::Format::Ipv6 => Value::from(field.format.show(value).to_string()),
        _ => Value::from(u64::try_from(value).unwrap_or(u64::MAX)),
    };
    let first = |change: &&linerate_generate::stream::Change| {
        change.offset * 8 + change.width * 8 - (128 - change.mask.leading_zeros() as usize) == bit
    };
    let Some(change) = stream.variants[0].changes.iter().find(first) else {
        return Some(json!({"choice": "value", "value": shown(field.get(bytes)?)}));
    };
    let selector = &stream.selectors[change.selector];
    let IndexSelection::InTurn { every: 1 } = selector.pick else { return None };
    let values: Vec<u128> = (0..selector.count.min(MOST_VALUES + 1)).map(|index| change.map.at(index)).collect();
    if let [start, second, ..] = values[..]
        && let Some(step) = second.checked_sub(start)
        && values
            .iter()
            .enumerate()
            .all(|(index, value)| *value == start.wrapping_add(step.wrapping_mul(index as u128)))
    {
        let counter = json!({"start": shown(start), "step": shown(step), "count": selector.count});
        return Some(json!({"choice": "increment", "increment": counter}));
    }
    let all = values.iter().map(|value| shown(*value)).collect::<Vec<_>>();
    (values.len() as u64 <= MOST_VALUES).then(|| json!({"choice": "values", "values": all}))
}

/// Returns whether a flow of the model sends the same frames at the same times as the stream.
fn is_same(flow: &Value, one: &StreamSpec, stream: &Stream) -> bool {
    let ports: Vec<Value> = one.rx.iter().chain([&one.tx]).map(|name| json!({"name": name})).collect();
    let document = json!({"ports": ports, "flows": [flow]});
    let Ok(config) = Config::read(&document, &Setup::default()) else { return false };
    let Some(flow) = config.flows.into_iter().next() else { return false };
    // Its id is assigned later, and is part of trailers.
    let other = Stream { id: stream.id, ..flow.stream };
    let timing = |stream: &Stream| (stream.rate, stream.shape.clone(), stream.count, stream.span, stream.mark);
    let is_frame_same = |n| other.frame(n, 0, &Key::default()) == stream.frame(n, 0, &Key::default());
    timing(&other) == timing(stream) && (0..COMPARED).all(is_frame_same)
}

/// Reads the streams of a script or a configuration.
pub(super) fn read(tester: &Tester, text: &str, faults: &mut Faults) -> Vec<Value> {
    let inner = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or(text, |(inner, _)| inner);
    let document: Value = match serde_json::from_str(inner) {
        Ok(document) => document,
        Err(error) => {
            faults.add("", format_args!("invalid JSON: {error}"));
            return Vec::new();
        }
    };
    let config = match Config::read(&document, &Setup::default()) {
        Ok(config) => config,
        Err(wrong) => {
            wrong.lines().iter().for_each(|line| faults.add("", line));
            return Vec::new();
        }
    };
    let location = |name: &String| {
        let found = config.ports.iter().find(|port| port.name == *name);
        tester.name_of(found.map_or(name, |port| &port.location))
    };
    let mut streams = Vec::new();
    for flow in &config.flows {
        let stream = &flow.stream;
        let sizes: Vec<String> = stream.variants.iter().map(|variant| (variant.frame.len() + 4).to_string()).collect();
        let size = if sizes.len() == 1 { sizes[0].clone() } else { format!("[{}]", sizes.join(", ")) };
        let check = match stream.mark {
            Mark::None => "no",
            Mark::Count => "count",
            Mark::Trailer => "trailer",
        };
        let mut one = json!({
            "name": flow.name, "tx": location(&flow.tx), "rx": flow.rx.iter().map(location).collect::<Vec<_>>(),
            "packet": flow.text, "size": size, "rate": rate(stream.rate), "check": check
        });
        if let Some(count) = stream.count {
            one["count"] = count.into();
        }
        if let Shape::Bursts { frames, gap } = stream.shape {
            one["burst"] = json!({"frames": frames, "gap": format!("{gap}ns")});
        }
        if stream.span.start > 0 {
            one["start"] = format!("{}ns", stream.span.start).into();
        }
        if let Some(length) = stream.span.length {
            one["for"] = format!("{length}ns").into();
        }
        streams.push(one);
    }
    streams
}

/// Formats a rate for a stream file.
fn rate(rate: Rate) -> String {
    match rate {
        Rate::Frames(frames) => format!("{frames}pps"),
        Rate::Bits(bits, Layer::L1) => format!("{bits}bpsl1"),
        Rate::Bits(bits, Layer::L2) => format!("{bits}bps"),
        Rate::Top => "max".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_stays_within_the_literal() {
        for text in
            ["x'''+exit()+r'''", "\"\"\"", "\\", "\\'", "\n\r\u{2028}\u{2029}\u{7f}\u{85}", "\u{202e}\u{1f600}é"]
        {
            let document = json!({"name": text, text: 1});
            let literal = literal(&document);
            assert!(!literal.contains('\''), "{literal}");
            assert!(literal.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{literal}");
            assert_eq!(serde_json::from_str::<Value>(&literal).unwrap(), document);
        }
    }
}
