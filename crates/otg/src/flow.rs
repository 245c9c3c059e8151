//! Flow: frames, transmit and receive ports, and metrics.

use crate::device::{Ethernet, Gateway};
use crate::flow_ports::{FlowPorts, ends, gateway};
use crate::frame_edits::{omit_fcs, spoil};
use crate::headers::{Destination, HEADERS, HeaderText};
use crate::read::{Faults, Node, Object};
use crate::timing::{Timing, sizes};
use linerate_generate::packet::{self, Frames, Sizes};
use linerate_generate::stream::{Mark, Next, Stream};
use linerate_headers::Link;

/// Maximum bytes of the frames of all flows of a configuration, each size once.
pub const MOST_BYTES: usize = 64 << 20;

/// Options besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Seed of random values without their own.
    pub seed: u64,
    /// Line rates of ports in bits per second, by name, for those that the configuration does not give.
    pub lines: Vec<(String, f64)>,
}

/// Definition of latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// From the first bit sent to the first bit received.
    CutThrough,
    /// From the last bit sent to the first bit received: less by the serialization time of the frame.
    StoreForward,
}

/// Flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Name.
    pub name: String,
    /// Name of the transmit port.
    pub tx: String,
    /// Names of the receive ports.
    pub rx: Vec<String>,
    /// Gateway whose MAC address is the destination of its frames, if that depends on the sending devices.
    pub gateway: Option<Gateway>,
    /// Frames, rate and count. The stream number is assigned later.
    pub stream: Stream,
    /// Frames as one line of the packet language.
    pub text: String,
    /// True if metrics are enabled.
    pub is_counted: bool,
    /// True if loss is requested.
    pub loss: bool,
    /// True if the times of the first and last frame are requested.
    pub timestamps: bool,
    /// Definition of the requested latency, if any.
    pub latency: Option<Latency>,
}

/// Maximum number of headers of a packet.
const MOST_HEADERS: usize = 32;
/// Maximum length of a text in bytes, mainly of lists of values.
const LONGEST_TEXT: usize = 16 << 20;

impl Flow {
    /// Parses a flow; `seed` is for random values without their own, and `line` returns the line rate of a port in bits
    /// per second.
    pub fn read(
        node: &Node<'_>,
        seed: u64,
        (devices, line): (&[Ethernet], impl Fn(&str) -> Option<f64>),
        room: usize,
        faults: &mut Faults,
        warnings: &mut Vec<String>,
    ) -> Option<Flow> {
        let before = faults.list.len() + faults.more;
        let mut flow = node.object(faults);
        let name = flow.needed("name", faults).to_owned();
        let FlowPorts { tx, rx, from } = ends(&mut flow, devices, faults);
        let headers = headers(&mut flow, seed, faults);
        let gateway = gateway(&headers, &from, &flow.at("packet"), faults);
        let size = sizes(&mut flow, faults, warnings);
        let timing = Timing::read(&mut flow, line(&tx), faults);
        let mut made = Flow {
            name,
            tx,
            rx,
            gateway,
            stream: empty(&timing),
            text: headers.iter().map(|header| header.text.as_str()).collect::<Vec<_>>().join("/"),
            is_counted: false,
            loss: false,
            timestamps: false,
            latency: None,
        };
        made.metrics(&mut flow, faults);
        let path = flow.path.clone();
        flow.finish(faults);
        if faults.list.len() + faults.more > before {
            return None;
        }
        made.stream.name.clone_from(&made.name);
        made.make(&headers, (&size, room), seed, &path, faults, warnings).then_some(made)
    }

    fn metrics(&mut self, flow: &mut Object<'_>, faults: &mut Faults) {
        let Some(mut metrics) = flow.object("metrics", faults) else { return };
        self.is_counted = metrics.flag("enable", faults).unwrap_or(false);
        self.loss = metrics.flag("loss", faults).unwrap_or(false);
        self.timestamps = metrics.flag("timestamps", faults).unwrap_or(false);
        if let Some(mut latency) = metrics.object("latency", faults) {
            let is_wanted = latency.flag("enable", faults).unwrap_or(false);
            let mode = match latency.text("mode", faults) {
                Some("cut_through") => Latency::CutThrough,
                Some("store_forward") | None => Latency::StoreForward,
                Some(other) => {
                    faults.add(
                        &latency.at("mode"),
                        format_args!("invalid value {other:?}; expected cut_through or store_forward"),
                    );
                    Latency::CutThrough
                }
            };
            latency.finish(faults);
            self.latency = (is_wanted && self.is_counted).then_some(mode);
        }
        metrics.finish(faults);
    }

    /// Makes its frames; returns false on errors, which are reported.
    fn make(
        &mut self,
        headers: &[HeaderText],
        (size, room): (&str, usize),
        seed: u64,
        path: &str,
        faults: &mut Faults,
        warnings: &mut Vec<String>,
    ) -> bool {
        let nested = headers.iter().filter(|written| written.header.is_some_and(|row| row.otg == "ethernet")).count();
        let whole = headers.first().is_some_and(|written| written.header.is_none());
        let mark = match self.is_counted {
            false => Mark::None,
            true if nested > 1 || whole => Mark::Count,
            true => Mark::Trailer,
        };
        let sizes = match packet::sizes(size, seed) {
            Ok(sizes) => sizes,
            Err(wrong) => {
                faults.add(&format!("{path}.size"), wrong.what);
                return false;
            }
        };
        let bytes = match &sizes {
            Sizes::Of(sizes, _) => sizes.iter().sum::<usize>(),
            _ => 0,
        };
        if bytes > room {
            let what = "its sizes need too much memory";
            let most = MOST_BYTES >> 20;
            faults.add(
                &format!("{path}.size"),
                format_args!("{what}: {bytes} bytes of {most} MiB for all flows; use steps"),
            );
            return false;
        }
        let made = |mark| {
            let setup = packet::Setup { link: Link::Ethernet, sizes: sizes.clone(), mark, seed, ..Default::default() };
            packet::frames(&self.text, &setup)
        };
        let (mut mark, mut frames) = (mark, made(mark));
        if mark == Mark::Trailer && frames.as_ref().is_err_and(|wrong| wrong.of_size) {
            (mark, frames) = (Mark::Count, made(Mark::Count));
        }
        let mut frames = match frames {
            Ok(frames) => frames,
            Err(wrong) => {
                let field = if wrong.of_size { "size" } else { "packet" };
                faults.add(&format!("{path}.{field}"), wrong.what);
                return false;
            }
        };
        if mark == Mark::Count && self.is_counted {
            if self.latency.is_some() {
                let what = "latency needs a trailer of 16 bytes; use larger frames, no inner Ethernet";
                faults.add(&format!("{path}.metrics.latency"), what);
                return false;
            }
            warnings.push(format!("{path}: no room for a trailer; frames are identified by their constant bytes"));
        }
        let bad: Vec<bool> = headers.iter().map(|header| header.is_bad).collect();
        if nested > 1 {
            omit_fcs(&mut frames);
        }
        if bad.contains(&true) {
            spoil(&mut frames, &bad);
        }
        self.take(frames, mark);
        true
    }

    fn take(&mut self, frames: Frames, mark: Mark) {
        let Frames { link, variants, size, selectors } = frames;
        self.stream = Stream { link, variants, size, selectors, mark, ..self.stream.clone() };
    }
}

fn empty(timing: &Timing) -> Stream {
    Stream {
        name: String::new(),
        id: 0,
        link: Link::Ethernet,
        variants: Vec::new(),
        size: linerate_generate::stream::Selector::ONE,
        selectors: Vec::new(),
        rate: timing.rate,
        shape: timing.shape.clone(),
        count: timing.count,
        next: Next::Following,
        span: timing.span,
        mark: Mark::None,
    }
}

fn headers(flow: &mut Object<'_>, seed: u64, faults: &mut Faults) -> Vec<HeaderText> {
    let nodes = flow.list("packet", faults);
    if nodes.is_empty() {
        let usual = "eth(src=0, dst=0)".to_owned();
        return vec![HeaderText {
            text: usual,
            header: HEADERS.first(),
            destination: Destination::Open,
            ..HeaderText::default()
        }];
    }
    if nodes.len() > MOST_HEADERS {
        faults.add(&flow.at("packet"), format_args!("{} headers; expected at most {MOST_HEADERS}", nodes.len()));
        return Vec::new();
    }
    let last = nodes.len() - 1;
    let mut written: Vec<HeaderText> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        // Fields of the same name in two headers need different seeds.
        let seed = seed.wrapping_add(index as u64);
        if let Some(header) = header(node, index == last, seed, faults) {
            written.push(header);
        }
    }
    if written.iter().map(|header| header.text.len()).sum::<usize>() > LONGEST_TEXT {
        faults.add(&flow.at("packet"), "lists of values are too long");
    }
    written
}

fn header(node: &Node<'_>, is_last: bool, seed: u64, faults: &mut Faults) -> Option<HeaderText> {
    let mut object = node.object(faults);
    let names: Vec<&'static str> = HEADERS.iter().map(|row| row.otg).chain(["custom"]).collect();
    let choice = object.choice(&names, faults);
    let known = names.into_iter().find(|name| *name == choice)?;
    let inner = object.take(known);
    let path = object.at(known);
    object.finish(faults);
    let nothing = serde_json::json!({});
    let inner = inner.unwrap_or(Node { path, value: &nothing });
    match HEADERS.iter().find(|row| row.otg == known) {
        Some(row) => Some(row.write(&inner, seed, faults)),
        None => custom(&inner, is_last, faults),
    }
}

/// Parses raw bytes.
fn custom(node: &Node<'_>, is_last: bool, faults: &mut Faults) -> Option<HeaderText> {
    let mut object = node.object(faults);
    let digits: String = object.needed("bytes", faults).replace("0x", "").replace([' ', ':', '\n', '\t', '\r'], "");
    object.finish(faults);
    if digits.is_empty() || digits.len() % 2 == 1 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        faults.add(&object_path(node), "invalid bytes; expected pairs of hexadecimal digits");
        return None;
    }
    if !is_last {
        faults.add(&node.path, "raw bytes are supported only as the last header");
        return None;
    }
    Some(HeaderText { text: format!("raw({digits})"), ..HeaderText::default() })
}

fn object_path(node: &Node<'_>) -> String {
    format!("{}.bytes", node.path)
}
