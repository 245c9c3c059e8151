//! Values of a field, converted to the packet language: one, a list, a counter, random.

use crate::read::{Faults, Node, Object};
use linerate_burst::random::draw;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Notation of the values of a field in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers with this number of bits.
    Bits(u32),
    /// `00:11:22:33:44:55`.
    Mac,
    /// `10.0.0.1`.
    Ipv4,
    /// `2001:2::1`.
    Ipv6,
}

/// Pattern of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The default value.
    Usual,
    /// A computed value.
    Auto,
    /// Text in the packet language.
    Values(String),
}

/// Maximum number of values of a list, and of random values.
const MOST_VALUES: usize = 1 << 16;

impl Kind {
    /// Returns the bits of the field.
    pub fn bits(self) -> u32 {
        match self {
            Kind::Bits(bits) => bits,
            Kind::Mac => 48,
            Kind::Ipv4 => 32,
            Kind::Ipv6 => 128,
        }
    }

    fn most(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    fn example(self) -> &'static str {
        match self {
            Kind::Bits(_) => "a whole number",
            Kind::Mac => "a MAC address such as 00:11:22:33:44:55",
            Kind::Ipv4 => "an IPv4 address such as 10.0.0.1",
            Kind::Ipv6 => "an IPv6 address such as 2001:2::1",
        }
    }

    /// Parses one value.
    pub fn read(self, node: &Node<'_>, faults: &mut Faults) -> Option<u128> {
        let text = node.value.as_str();
        let value = match self {
            Kind::Bits(_) => return self.fits(node.number(faults)?.into(), node, faults),
            Kind::Mac => text.and_then(mac),
            Kind::Ipv4 => text.and_then(|text| text.parse::<Ipv4Addr>().ok()).map(|address| address.to_bits().into()),
            Kind::Ipv6 => text.and_then(|text| text.parse::<Ipv6Addr>().ok()).map(Ipv6Addr::to_bits),
        };
        if value.is_none() {
            faults.add(&node.path, format_args!("expected {}", self.example()));
        }
        value
    }

    fn fits(self, value: u128, node: &Node<'_>, faults: &mut Faults) -> Option<u128> {
        let most = self.most();
        if value > most {
            faults.add(
                &node.path,
                format_args!("{value} is too large for {} bits; expected at most {most}", self.bits()),
            );
        }
        (value <= most).then_some(value)
    }
}

/// Parses six pairs of hexadecimal digits.
fn mac(text: &str) -> Option<u128> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let all = parts.len() == 6 && parts.iter().all(|part| (1..=2).contains(&part.len()));
    let byte = |part: &&str| u128::from_str_radix(part, 16).ok();
    all.then(|| parts.iter().try_fold(0, |sum, part| Some(sum << 8 | byte(part)?)))?
}

impl Pattern {
    /// Parses the pattern of a field; `seed` is for random values without their own.
    pub fn read(node: &Node<'_>, kind: Kind, seed: u64, faults: &mut Faults) -> Pattern {
        let mut object = node.object(faults);
        let choice = object.choice(&["value", "values", "increment", "decrement", "random", "auto"], faults);
        // Other choices are ignored: clients leave earlier ones.
        object.ignore(&["value", "values", "increment", "decrement", "random", "auto"]);
        let values = match choice {
            "value" => match object.take("value") {
                Some(value) => kind.read(&value, faults).map(|value| value.to_string()),
                None => return after(object, Pattern::Usual, faults),
            },
            "values" => {
                let nodes = object.list("values", faults);
                list(&nodes, kind, &object.at("values"), faults)
            }
            "increment" => counter(&mut object, "increment", kind, faults),
            "decrement" => counter(&mut object, "decrement", kind, faults),
            "random" => drawn(&mut object, kind, seed, faults),
            "auto" => return after(object, Pattern::Auto, faults),
            _ => None,
        };
        after(object, values.map_or(Pattern::Usual, Pattern::Values), faults)
    }
}

fn after(object: Object<'_>, pattern: Pattern, faults: &mut Faults) -> Pattern {
    object.finish(faults);
    pattern
}

fn list(nodes: &[Node<'_>], kind: Kind, path: &str, faults: &mut Faults) -> Option<String> {
    if nodes.is_empty() || nodes.len() > MOST_VALUES {
        faults.add(path, format_args!("{} values; expected 1 to {MOST_VALUES}", nodes.len()));
        return None;
    }
    let values: Vec<u128> = nodes.iter().filter_map(|node| kind.read(node, faults)).collect();
    (values.len() == nodes.len()).then(|| written(&values))
}

fn written(values: &[u128]) -> String {
    let mut text = String::from("[");
    for (index, value) in values.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{value}");
    }
    text + "]"
}

/// Parses a counter: value i is start plus or minus (i modulo count) steps, modulo the width of the field.
fn counter(object: &mut Object<'_>, name: &'static str, kind: Kind, faults: &mut Faults) -> Option<String> {
    let Some(mut counter) = object.object(name, faults) else { return Some("0".into()) };
    let mut one = |name, usual| counter.take(name).map_or(Some(usual), |node| kind.read(&node, faults));
    let (start, step) = (one("start", 0), one("step", 1));
    let count = counter.number("count", faults).unwrap_or(1).max(1);
    let path = counter.at("count");
    counter.finish(faults);
    let (start, step, most) = (start?, step?, kind.most());
    if step == 0 || count == 1 {
        return Some(start.to_string());
    }
    let span = step.checked_mul(u128::from(count - 1));
    let last = match name {
        "increment" => span.and_then(|span| start.checked_add(span)).filter(|last| *last <= most),
        _ => span.and_then(|span| start.checked_sub(span)),
    };
    if let Some(last) = last {
        return Some(format!("{start}..{last}/{step}"));
    }
    if count as usize > MOST_VALUES {
        faults.add(&path, format_args!("too many values; a counter that wraps may have at most {MOST_VALUES}"));
        return None;
    }
    let step = if name == "increment" { step } else { step.wrapping_neg() };
    let value = |index: u64| start.wrapping_add(step.wrapping_mul(index.into())) & most;
    Some(written(&(0..count).map(value).collect::<Vec<_>>()))
}

/// Draws values once, which are then used in turn.
fn drawn(object: &mut Object<'_>, kind: Kind, seed: u64, faults: &mut Faults) -> Option<String> {
    let mut random = object.object("random", faults)?;
    let mut one = |name, usual| random.take(name).map_or(Some(usual), |node| kind.read(&node, faults));
    let (least, most) = (one("min", 0), one("max", kind.most()));
    let own = random.number("seed", faults).unwrap_or(1);
    let count = random.number("count", faults).unwrap_or(1);
    let path = random.path.clone();
    random.finish(faults);
    let (least, most) = (least?, most?);
    if least > most || count == 0 || count as usize > MOST_VALUES {
        faults.add(&path, format_args!("invalid range; expected min up to max, and a count of 1 to {MOST_VALUES}"));
        return None;
    }
    let seed = if own == 0 { seed } else { own };
    let span = (most - least).wrapping_add(1);
    let value = |index: u64| {
        let wide = u128::from(draw(seed, 2 * index)) << 64 | u128::from(draw(seed, 2 * index + 1));
        least + if span == 0 { wide } else { wide % span }
    };
    Some(written(&(0..count).map(value).collect::<Vec<_>>()))
}
