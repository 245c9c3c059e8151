//! Values in filter text, and in the names of keys.

use crate::networks::{Network, network as masked};
use crate::quantity::Number;
use std::net::{IpAddr, Ipv4Addr};

/// A number, with a unit of thousands (`k`, `M`, `G`, `T`) or of 1,024 (`Ki`, ...).
pub(crate) fn scaled(text: &str) -> Result<Number, String> {
    const UNITS: [(&str, u64); 8] = [
        ("k", 1_000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("t", 1_000_000_000_000),
        ("ki", 1 << 10),
        ("mi", 1 << 20),
        ("gi", 1 << 30),
        ("ti", 1 << 40),
    ];
    let (digits, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let scale = if unit.is_empty() { Some(1) } else { UNITS.iter().find(|(name, _)| *name == unit).map(|(_, by)| *by) };
    let found = scale.and_then(|scale| times(digits, scale));
    found.ok_or_else(|| format!("{text} is no number; as in 10, 1.5k, 2M, 64Ki"))
}

/// A span of time in nanoseconds: with a unit, or plain ns where a field says so.
pub(crate) fn span(text: &str, needs_unit: bool) -> Result<Number, String> {
    const UNITS: [(&str, u64); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ];
    let (digits, unit) = split(text);
    if unit.is_empty() && needs_unit && digits != "0" {
        return Err(format!("say which unit: {text}s, {text}ms, {text}m"));
    }
    let scale = if unit.is_empty() { Some(1) } else { UNITS.iter().find(|(name, _)| *name == unit).map(|(_, by)| *by) };
    let found = scale.and_then(|scale| times(digits, scale));
    found.ok_or_else(|| format!("{text} is no span of time; as in 10s, 250ms, 5m, 1h"))
}

/// The number of an id: as JSON has it 16 digits, hexadecimal; or decimal.
pub(crate) fn id(text: &str) -> Result<Number, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hexadecimal = digits.len() == 16 || digits.len() < text.len();
    let number = if is_hexadecimal { u64::from_str_radix(digits, 16) } else { text.parse() };
    number.map(Number::Whole).map_err(|_| format!("{text} is no id; as in 0123456789abcdef"))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// Exactly, where that is a whole number.
fn times(digits: &str, scale: u64) -> Option<Number> {
    if let Ok(number) = digits.parse::<u64>() {
        return number.checked_mul(scale).map(Number::Whole);
    }
    let (whole, fraction) = digits.split_once('.')?;
    let exact = || -> Option<u64> {
        let power = 10u128.checked_pow(fraction.len() as u32)?;
        let all = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(scale.into())?;
        all.is_multiple_of(power).then(|| u64::try_from(all / power).ok())?
    };
    let real = || digits.parse::<f64>().ok().map(|number| Number::Real(number * scale as f64));
    exact().map(Number::Whole).or_else(real)
}

/// An address, whole.
pub(crate) fn host(text: &str) -> Result<Network, String> {
    if text.contains('/') {
        return Err(format!("{text} is a network: net {text}"));
    }
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("{text} is no address; names are not looked up: give 10.0.0.1 or 2001:db8::1"))?;
    Ok((address, if address.is_ipv6() { 128 } else { 32 }))
}

/// A network: with its length, with a mask, or fewer than four numbers, as pcap-filter has it.
pub(crate) fn network(text: &str, mask: Option<&str>) -> Result<Network, String> {
    let wrong = || format!("{text} is no network; as in 10.0.0.0/8, 192.168, 2001:db8::/32");
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let parts = address.split('.').count();
    let is_short = !address.contains(':') && parts < 4;
    let padded = if is_short { format!("{address}{}", ".0".repeat(4 - parts)) } else { address.to_owned() };
    let address: IpAddr = padded.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv6() { 128 } else { 32 };
    let bits = match (length, mask) {
        (Some(_), Some(_)) => return Err(format!("{text} has its length; leave mask out")),
        (Some(length), None) => length.parse().map_err(|_| wrong())?,
        (None, Some(mask)) => {
            let mask: Ipv4Addr = mask.parse().map_err(|_| format!("{mask} is no mask; as in 255.255.0.0"))?;
            let ones = mask.to_bits().leading_ones();
            if address.is_ipv6() || mask.to_bits().count_ones() != ones {
                return Err(format!("{mask} is no mask of a network of IPv4: write {text}/{ones}"));
            }
            ones as u8
        }
        (None, None) if is_short => 8 * parts as u8,
        (None, None) => width,
    };
    if bits > width {
        return Err(format!("{text}: a network has at most {width} bits"));
    }
    let network = masked(address, bits);
    if network == address {
        Ok((address, bits))
    } else {
        Err(format!(
            "{text} has bits behind its {bits} first: net {network}/{bits} is the network, host {address} the host"
        ))
    }
}

/// A step of time, in ns, as in `5m`, `1h`, `10s`.
///
/// # Errors
/// It is none.
pub fn step(text: &str) -> Result<u64, String> {
    match span(text, true)? {
        Number::Whole(step) if step > 0 => Ok(step),
        _ => Err(format!("{text} is no step of time; as in 10s, 5m, 1h")),
    }
}
