//! Readable frames: layers and hexadecimal.

use super::stream_spec::{Fault, StreamSpec, streams};
use crate::recordings::Recordings;
use linerate_generate::stream::{Mark, Next, Order, Selector, Shape, Stream, StreamSet, Variant};
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, SenderPart, Timeline, describe};
use linerate_headers::Link;
use linerate_print::{Frame, Options, Printer, Time};
use serde_json::{Value, json};

/// Maximum number of frames shown per stream.
pub(super) const MOST_SHOWN: u64 = 32;
/// Maximum bytes shown per frame.
const MOST_BYTES: usize = 9216;

/// Returns the first frames of a stream, with their due times.
///
/// # Errors
/// The stream is invalid.
pub(super) fn first(
    one: &StreamSpec,
    line: Option<f64>,
    recordings: &Recordings,
    count: u64,
) -> Result<Vec<Value>, Fault> {
    // The receiver is not known for a single stream.
    let mut single = one.clone();
    single.sequence = None;
    single.keys.retain(|(key, _)| *key != "next");
    let streams = streams(&[&single], line, recordings)?;
    let fault = |key: &str, what: String| Fault { stream: 0, key: key.to_owned(), at: None, what };
    if streams.iter().any(|stream| stream.rate == Rate::Top) {
        return Err(fault("rate", "an unlimited rate would block the other streams; set a rate".to_owned()));
    }
    let set = StreamSet { streams, order: Order::Interleaved, rate: None, key: Key::default() };
    let mut timeline = Timeline::new(&set, SenderPart::WHOLE).map_err(|wrong| fault("", wrong.to_string()))?;
    let (mut slots, mut frames) = (Vec::new(), Vec::new());
    for _ in 0..count.min(MOST_SHOWN) {
        slots.clear();
        timeline.take(u64::MAX, 1, &mut slots);
        let Some(slot) = slots.first().map(|run| run.first) else { break };
        let stream = &set.streams[slot.stream as usize];
        let frame = stream.frame(slot.number, slot.due, &set.key);
        let text = describe(stream, slot.number, slot.due, &set.key);
        let mut shown = shown(&frame, &text);
        shown["number"] = slot.number.into();
        shown["due_ns"] = slot.due.into();
        shown["summary"] = summary(&frame, frame.len() as u32).into();
        frames.push(shown);
    }
    Ok(frames)
}

/// Decodes a received frame by layer.
pub(super) fn layers(frame: &[u8]) -> Value {
    let variant = Variant { frame: frame.to_vec(), ..Variant::default() };
    let stream = Stream {
        name: String::new(),
        id: 0,
        link: Link::Ethernet,
        variants: vec![variant],
        size: Selector::ONE,
        selectors: Vec::new(),
        rate: Rate::Top,
        shape: Shape::Even,
        count: None,
        next: Next::Following,
        span: Default::default(),
        mark: Mark::None,
    };
    shown(frame, &describe(&stream, 0, 0, &Key::default()))
}

/// Returns a frame as one line, without its time.
pub(super) fn summary(frame: &[u8], wire: u32) -> String {
    let mut line = Vec::new();
    let options = Options { time: Time::None, ..Options::default() };
    Printer::new(options).line(&Frame { time: 0, interface: "", link: ETHERNET, bytes: frame, wire }, &mut line);
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Link type of Ethernet.
const ETHERNET: u16 = 1;

/// Parses lines of the form `  name  fields`, after the first.
fn shown(frame: &[u8], text: &str) -> Value {
    let layer = |line: &str| {
        let (name, fields) = line.trim_start().split_once(' ').unwrap_or((line.trim(), ""));
        json!({"layer": name, "fields": fields.trim_start()})
    };
    let hex: String = frame.iter().take(MOST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    json!({"length": frame.len(), "layers": text.lines().skip(1).map(layer).collect::<Vec<_>>(), "hex": hex})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_shown_as_sent() {
        let document = json!({"name": "a", "tx": "p", "packet": "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)", "rate": "1kpps", "count": 3});
        let frames = first(&StreamSpec::read(&document).unwrap(), None, &Recordings::default(), 5).unwrap();
        assert_eq!(frames.len(), 3, "all three frames");
        let layers: Vec<&str> =
            frames[1]["layers"].as_array().unwrap().iter().filter_map(|layer| layer["layer"].as_str()).collect();
        assert_eq!(layers[..3], ["eth", "ip", "udp"]);
        assert!(frames[1]["layers"][1]["fields"].as_str().unwrap().contains("dst=10.0.0.2 {"), "{}", frames[1]);
        assert_eq!((frames[1]["due_ns"].as_u64(), frames[1]["length"].as_u64()), (Some(1_000_000), Some(60)));
        assert!(
            frames[0]["summary"].as_str().unwrap().starts_with("IP 198.18.0.1.49152 > 10.0.0.1.53:"),
            "{}",
            frames[0]
        );
    }

    #[test]
    fn any_bytes_have_layers() {
        for length in [0, 1, 13, 14, 60, 9000] {
            let frame: Vec<u8> = (0..length).map(|byte| (byte * 31 + 7) as u8).collect();
            assert_eq!(layers(&frame)["length"].as_u64(), Some(length as u64));
        }
    }
}
