//! Headers and fields, with their names in the model and in the packet language.

mod table;

pub use table::HEADERS;

use crate::pattern::Kind::{self, Bits};
use crate::pattern::Pattern;
use crate::read::{Faults, Node, Object};
use table::set;

/// Field of a header.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in the model.
    pub otg: &'static str,
    /// Name in the packet language; empty if only the default value is supported.
    pub name: &'static str,
    /// Kind of its values.
    pub kind: Kind,
    /// Default value; `None` if it is computed.
    pub usual: Option<u128>,
}

/// Header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Name in the model.
    pub otg: &'static str,
    /// Name in the packet language.
    pub name: &'static str,
    /// Fields.
    pub fields: &'static [Field],
    /// Names of its checksum field in the model and in the packet language.
    pub checksum: Option<(&'static str, &'static str)>,
}

/// Header of a packet in the packet language, with later changes.
#[derive(Clone, Debug, Default)]
pub struct HeaderText {
    /// Text in the packet language.
    pub text: String,
    /// Row in [`HEADERS`]; `None` for `custom`.
    pub header: Option<&'static Header>,
    /// True if its checksum shall be wrong.
    pub is_bad: bool,
    /// Destination; unless given, it is the gateway of the sending devices.
    pub destination: Destination,
}

/// Destination of an Ethernet header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Given; also of other headers.
    #[default]
    Given,
    /// Not given.
    Open,
    /// Automatic.
    Follows,
}

impl Header {
    /// Writes a header; `seed` is for random values.
    pub fn write(&'static self, node: &Node<'_>, seed: u64, faults: &mut Faults) -> HeaderText {
        let mut object = node.object(faults);
        let mut parts = Vec::new();
        let (mut name, mut destination) = (self.name, Destination::Given);
        let has_checksum = match self.otg {
            "icmp" | "icmpv6" => {
                object.choice(&["echo"], faults);
                let empty = object.object("echo", faults);
                let outer = std::mem::replace(&mut object, empty.unwrap_or_else(|| nothing(node)));
                outer.finish(faults);
                true
            }
            "ethernet" => {
                destination = follows(&object);
                true
            }
            "ipv4" => {
                priority(&mut object, seed, &mut parts, faults);
                true
            }
            "gre" => {
                let is_there = flag(&mut object, "checksum_present", faults);
                parts.extend(is_there.then(|| "checksum".to_owned()));
                is_there
            }
            "gtpv1" => {
                gtp(&mut object, seed, &mut parts, faults);
                true
            }
            _ => true,
        };
        for field in self.fields {
            if destination == Destination::Follows && field.otg == "dst" {
                object.ignore(&["dst"]);
                parts.push("dst=0".to_owned());
                continue;
            }
            field.write(&mut object, seed, &mut parts, faults);
        }
        if self.otg == "vlan" {
            name = tag(&mut parts, &object.at("tpid"), faults);
        }
        let mut is_bad = false;
        if let Some((otg, own)) = self.checksum {
            is_bad = checksum(&mut object, otg, own, has_checksum, &mut parts, faults);
        }
        object.finish(faults);
        if parts.iter().any(|part| part.starts_with("checksum=")) {
            parts.retain(|part| part != "checksum");
        }
        HeaderText { text: format!("{name}({})", parts.join(", ")), header: Some(self), is_bad, destination }
    }
}

/// Returns the kind of destination. An automatic one is 0 until it is resolved.
fn follows(object: &Object<'_>) -> Destination {
    let Some(value) = object.peek("dst") else { return Destination::Open };
    let fields = value.as_object();
    let is_auto = fields.is_some_and(|fields| match fields.get("choice") {
        Some(choice) => choice == "auto",
        None => fields.len() == 1 && fields.contains_key("auto"),
    });
    if is_auto { Destination::Follows } else { Destination::Given }
}

fn nothing<'a>(node: &Node<'a>) -> Object<'a> {
    Node { path: node.path.clone(), value: &EMPTY }.object(&mut Faults::default())
}

static EMPTY: serde_json::Value = serde_json::Value::Null;

impl Field {
    fn write(&self, object: &mut Object<'_>, seed: u64, parts: &mut Vec<String>, faults: &mut Faults) {
        let Some(node) = object.take(self.otg) else {
            if let (Some(usual), false) = (self.usual, self.name.is_empty()) {
                parts.push(format!("{}={usual}", self.name));
            }
            return;
        };
        let pattern = Pattern::read(&node, self.kind, draw(seed, self.otg), faults);
        let written = match (pattern, self.usual) {
            (Pattern::Values(values), _) => values,
            (Pattern::Auto, Some(_)) => {
                faults.add(&node.path, "\"auto\" is not supported for this field");
                return;
            }
            (Pattern::Usual, Some(usual)) => usual.to_string(),
            (_, None) => return,
        };
        if self.name.is_empty() {
            let usual = self.usual.unwrap_or_default();
            if written != usual.to_string() {
                faults.add(&node.path, format_args!("not supported, except the value {usual}"));
            }
            return;
        }
        let is_computed = self.name == "data_offset" && written == "0";
        parts.extend((!is_computed).then(|| format!("{}={written}", self.name)));
    }
}

/// Derives different seeds for the fields of a flow.
fn draw(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed, |seed, byte| linerate_burst::random::mix(seed ^ u64::from(byte)))
}

/// Returns the name of a tag with this protocol identifier.
fn tag(parts: &mut Vec<String>, path: &str, faults: &mut Faults) -> &'static str {
    let Some(at) = parts.iter().position(|part| part.starts_with("tpid=")) else { return "vlan" };
    match parts.remove(at).as_str() {
        "tpid=33024" | "tpid=65535" => "vlan",
        "tpid=34984" => "qinq",
        _ => {
            faults.add(path, "not supported; expected 33024 (802.1Q) or 34984 (802.1ad)");
            "vlan"
        }
    }
}

/// Parses a checksum; returns true if it shall be wrong.
fn checksum(
    object: &mut Object<'_>,
    otg: &'static str,
    name: &str,
    is_there: bool,
    parts: &mut Vec<String>,
    faults: &mut Faults,
) -> bool {
    let Some(node) = object.take(otg) else { return false };
    let mut checksum = node.object(faults);
    let choice = checksum.choice(&["generated", "custom"], faults);
    checksum.ignore(&["generated", "custom"]);
    let mut is_bad = false;
    match choice {
        "generated" => match checksum.text("generated", faults) {
            None | Some("good") => {}
            Some("bad") => is_bad = true,
            Some(other) => {
                faults.add(&checksum.at("generated"), format_args!("invalid value {other:?}; expected good or bad"))
            }
        },
        "custom" => {
            let value = checksum.take("custom").and_then(|node| Bits(16).read(&node, faults)).unwrap_or(0);
            parts.extend(is_there.then(|| format!("{name}={value}")));
        }
        _ => {}
    }
    checksum.finish(faults);
    is_bad && is_there
}

/// Parses the byte of an IPv4 header that has three forms.
fn priority(object: &mut Object<'_>, seed: u64, parts: &mut Vec<String>, faults: &mut Faults) {
    let Some(mut priority) = object.object("priority", faults) else {
        parts.push("tos=0".to_owned());
        return;
    };
    let choice = priority.choice(&["dscp", "raw", "tos"], faults);
    priority.ignore(&["raw", "tos", "dscp"]);
    match choice {
        "raw" => set("raw", "tos", Bits(8), 0).write(&mut priority, seed, parts, faults),
        "dscp" => fields(
            &mut priority,
            "dscp",
            &[set("phb", "dscp", Bits(6), 0), set("ecn", "ecn", Bits(2), 0)],
            seed,
            parts,
            faults,
        ),
        "tos" => {
            let all = [
                set("precedence", "tos&0xe0", Bits(3), 0),
                set("delay", "tos&0x10", Bits(1), 0),
                set("throughput", "tos&0x8", Bits(1), 0),
                set("reliability", "tos&0x4", Bits(1), 0),
                set("monetary", "tos&0x2", Bits(1), 0),
                set("unused", "tos&0x1", Bits(1), 0),
            ];
            fields(&mut priority, "tos", &all, seed, parts, faults);
        }
        _ => {}
    }
    priority.finish(faults);
}

fn fields(
    object: &mut Object<'_>,
    name: &'static str,
    all: &[Field],
    seed: u64,
    parts: &mut Vec<String>,
    faults: &mut Faults,
) {
    let Some(mut inner) = object.object(name, faults) else { return };
    all.iter().for_each(|field| field.write(&mut inner, seed, parts, faults));
    inner.finish(faults);
}

/// Returns whether a flag is set that determines the form of a header: it must be a single value.
fn flag(object: &mut Object<'_>, name: &'static str, faults: &mut Faults) -> bool {
    let Some(node) = object.take(name) else { return false };
    match Pattern::read(&node, Bits(1), 0, faults) {
        Pattern::Values(text) if text == "1" => true,
        Pattern::Values(text) if text != "0" => {
            faults.add(&node.path, "expected a single value, because it determines the form of the header");
            false
        }
        _ => false,
    }
}

/// Parses the fields of a GTPv1 header that depend on its flags.
fn gtp(object: &mut Object<'_>, seed: u64, parts: &mut Vec<String>, faults: &mut Faults) {
    let rows =
        [("s_flag", set("squence_number", "seq", Bits(16), 0)), ("pn_flag", set("n_pdu_number", "npdu", Bits(8), 0))];
    for (present, field) in rows {
        if flag(object, present, faults) {
            field.write(object, seed, parts, faults);
        }
        object.ignore(&["squence_number", "n_pdu_number", "next_extension_header_type"]);
    }
    if flag(object, "e_flag", faults) {
        faults.add(&object.at("e_flag"), "extension headers are not supported");
    }
    let kind = object.take("message_type").map(|node| Pattern::read(&node, Bits(8), 0, faults));
    match kind {
        Some(Pattern::Values(text)) if text.parse::<u8>().is_ok() => parts.push(format!("type={text}")),
        Some(Pattern::Values(_)) => faults
            .add(&object.at("message_type"), "expected a single value, because it determines the form of the header"),
        _ => {}
    }
}
