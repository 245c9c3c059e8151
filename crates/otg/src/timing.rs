//! Sizes, rates and durations of flows.

use crate::read::{Faults, Object};
use linerate_generate::stream::{Shape, Span};
use linerate_generate::{Layer, Rate};

/// Rate, shape, count and span of a flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timing {
    /// Rate.
    pub rate: Rate,
    /// Even, or in bursts.
    pub shape: Shape,
    /// Number of frames; `None` if endless.
    pub count: Option<u64>,
    /// Start and duration.
    pub span: Span,
}

/// Default rate of the model, in frames per second.
const USUAL_RATE: f64 = 1000.0;
/// Minimum gap between frames, in bytes.
const GAP: u64 = 12;
const USUAL_SIZE: &str = "64";
/// Smallest frame, FCS included.
const SMALLEST: f64 = 64.0;

impl Timing {
    /// Parses the fields `rate` and `duration` of a flow; `line` is the line rate in bits per second, if known.
    pub(crate) fn read(flow: &mut Object<'_>, line: Option<f64>, faults: &mut Faults) -> Timing {
        let rate = rate(flow, line, faults);
        let mut timing = Timing { rate, shape: Shape::Even, count: None, span: Span::ALWAYS };
        let Some(mut duration) = flow.object("duration", faults) else { return timing };
        let all = ["continuous", "fixed_packets", "fixed_seconds", "burst"];
        let choice = duration.choice(&all, faults);
        duration.ignore(&all);
        let Some(mut how) = all.into_iter().find(|name| *name == choice).and_then(|name| duration.object(name, faults))
        else {
            duration.finish(faults);
            // A choice without its object has default values.
            (timing.count, timing.span.length) = match choice {
                "fixed_packets" => (Some(1), None),
                "fixed_seconds" => (None, Some(1_000_000_000)),
                _ => (None, None),
            };
            return timing;
        };
        if how.number("gap", faults).is_some_and(|gap| gap != GAP) {
            faults.add(&how.at("gap"), format_args!("not supported, except the value {GAP}; set a rate"));
        }
        if choice != "burst" {
            timing.span.start = nanos(&mut how, "delay", line, faults);
        }
        match choice {
            "fixed_packets" => timing.count = some(how.number("packets", faults).unwrap_or(1), &how, "packets", faults),
            "fixed_seconds" => timing.span.length = Some((how.float("seconds", faults).unwrap_or(1.0) * 1e9) as u64),
            "burst" => {
                let frames = how.number("packets", faults).unwrap_or(1).max(1);
                let bursts = how.number("bursts", faults).unwrap_or(0);
                timing.count = (bursts > 0).then(|| bursts.saturating_mul(frames));
                let gap = nanos(&mut how, "inter_burst_gap", line, faults);
                timing.shape = Shape::Bursts { frames, gap };
            }
            _ => {}
        }
        how.finish(faults);
        duration.finish(faults);
        timing
    }
}

fn some(number: u64, object: &Object<'_>, name: &str, faults: &mut Faults) -> Option<u64> {
    if number == 0 {
        faults.add(&object.at(name), "expected 1 or more");
    }
    (number > 0).then_some(number)
}

fn rate(flow: &mut Object<'_>, line: Option<f64>, faults: &mut Faults) -> Rate {
    let Some(mut rate) = flow.object("rate", faults) else { return Rate::Frames(USUAL_RATE) };
    let all = ["pps", "bps", "kbps", "mbps", "gbps", "percentage"];
    let choice = rate.choice(&all, faults);
    rate.ignore(&all);
    let name = all.into_iter().find(|name| *name == choice);
    let value = name.and_then(|name| rate.float(name, faults));
    let path = rate.at(choice);
    rate.finish(faults);
    let bits = |unit: f64, usual: f64| Rate::Bits(value.unwrap_or(usual) * unit, Layer::L1);
    let rate = match choice {
        "bps" => bits(1.0, 1e9),
        "kbps" => bits(1e3, 1e6),
        "mbps" => bits(1e6, 1e3),
        "gbps" => bits(1e9, 1.0),
        "percentage" => match line {
            Some(line) => Rate::Bits(line * value.unwrap_or(100.0) / 100.0, Layer::L1),
            None => {
                faults.add(&path, "the line rate is unknown; set layer1.speed, or a rate in pps or bps");
                Rate::Frames(USUAL_RATE)
            }
        },
        _ => Rate::Frames(value.unwrap_or(USUAL_RATE)),
    };
    if matches!(rate, Rate::Frames(number) | Rate::Bits(number, _) if number <= 0.0) {
        faults.add(&path, "expected a rate above 0");
        return Rate::Frames(USUAL_RATE);
    }
    rate
}

/// Parses a time, which may be given in bytes on the line.
fn nanos(object: &mut Object<'_>, name: &'static str, line: Option<f64>, faults: &mut Faults) -> u64 {
    let Some(mut span) = object.object(name, faults) else { return 0 };
    let all = ["bytes", "nanoseconds", "microseconds"];
    let choice = span.choice(&all, faults);
    span.ignore(&all);
    let name = all.into_iter().find(|name| *name == choice);
    let value = name.and_then(|name| span.float(name, faults));
    let path = span.at(choice);
    span.finish(faults);
    let nanos = match (choice, line) {
        ("nanoseconds", _) => value.unwrap_or(0.0),
        ("microseconds", _) => value.unwrap_or(0.0) * 1e3,
        // At most the minimum gap.
        ("bytes", _) if value.unwrap_or(0.0) <= GAP as f64 => 0.0,
        ("bytes", Some(line)) => value.unwrap_or(0.0) * 8e9 / line,
        ("bytes", None) => {
            faults.add(&path, "the line rate is unknown; set layer1.speed, or a time");
            0.0
        }
        _ => 0.0,
    };
    if nanos >= 1e18 {
        faults.add(&path, "too long; expected at most thirty years");
        return 0;
    }
    nanos as u64
}

/// Parses the sizes of a flow's frames to the packet language; FCS included.
pub(crate) fn sizes(flow: &mut Object<'_>, faults: &mut Faults, warnings: &mut Vec<String>) -> String {
    let Some(mut size) = flow.object("size", faults) else { return USUAL_SIZE.into() };
    let choice = size.choice(&["fixed", "increment", "random", "weight_pairs"], faults);
    size.ignore(&["fixed", "increment", "random", "weight_pairs"]);
    let text = match choice {
        "increment" => size.object("increment", faults).map(|mut range| {
            let (start, end) =
                (range.number("start", faults).unwrap_or(64), range.number("end", faults).unwrap_or(1518));
            let step = range.number("step", faults).unwrap_or(1).max(1);
            range.finish(faults);
            format!("{start}..{end}/{step}")
        }),
        "random" => size.object("random", faults).map(|mut range| {
            let (least, most) =
                (range.number("min", faults).unwrap_or(64), range.number("max", faults).unwrap_or(1518));
            range.finish(faults);
            format!("random({least}..{most})")
        }),
        "weight_pairs" => size.object("weight_pairs", faults).map(|pairs| weights(pairs, faults, warnings)),
        _ => Some(size.number("fixed", faults).map_or_else(|| USUAL_SIZE.into(), |size| size.to_string())),
    };
    size.finish(faults);
    text.unwrap_or_else(|| USUAL_SIZE.into())
}

/// Predefined mixes: sizes and weights. Sizes below the smallest frame are raised to it.
const MIXES: &[(&str, &[(f64, f64)])] = &[
    ("imix", &[(64.0, 7.0), (570.0, 4.0), (1518.0, 1.0)]),
    ("ipsec_imix", &[(90.0, 58.67), (92.0, 2.0), (594.0, 23.66), (1418.0, 15.67)]),
    ("ipv6_imix", &[(60.0, 58.67), (496.0, 2.0), (594.0, 23.66), (1518.0, 15.67)]),
    ("standard_imix", &[(58.0, 58.67), (62.0, 2.0), (594.0, 23.66), (1518.0, 15.67)]),
    ("tcp_imix", &[(90.0, 58.67), (92.0, 2.0), (594.0, 23.66), (1518.0, 15.67)]),
];

fn weights(mut pairs: Object<'_>, faults: &mut Faults, warnings: &mut Vec<String>) -> String {
    let choice = pairs.choice(&["predefined", "custom"], faults);
    pairs.ignore(&["predefined", "custom"]);
    let mut rows = Vec::new();
    if choice == "custom" {
        for node in pairs.list("custom", faults) {
            let mut pair = node.object(faults);
            let size = pair.float("size", faults).unwrap_or(64.0);
            rows.push((size, pair.float("weight", faults).unwrap_or(1.0)));
            pair.finish(faults);
        }
    } else {
        let name = pairs.text("predefined", faults).unwrap_or("imix");
        match MIXES.iter().find(|(known, _)| *known == name) {
            Some((_, mix)) => rows.extend_from_slice(mix),
            None => faults.add(&pairs.at("predefined"), format_args!("unknown mix {name:?}")),
        }
        if rows.iter().any(|(size, _)| *size < SMALLEST) {
            warnings.push(format!("{}: sizes below 64 bytes are raised to 64", pairs.path));
        }
    }
    if rows.is_empty() {
        faults.add(&pairs.path, "expected at least one size");
        return USUAL_SIZE.into();
    }
    pairs.finish(faults);
    let all: Vec<String> = rows.iter().map(|(size, weight)| format!("{}:{weight}", size.max(SMALLEST))).collect();
    format!("[{}]", all.join(","))
}
