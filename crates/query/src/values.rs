//! Values in filter text, and in names of keys.

use crate::networks::{Network, network as masked};
use crate::quantity::Number;
use std::net::{IpAddr, Ipv4Addr};

/// Parses a number, with a unit of thousands (`k`, `M`, `G`, `T`) or of 1,024 (`Ki`, ...).
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
    found.ok_or_else(|| format!("{text}: invalid number; examples: 10, 1.5k, 2M, 64Ki"))
}

/// Parses a duration to nanoseconds: with a unit, or plain ns for fields that are in ns.
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
        return Err(format!("{text}: missing unit; write {text}s, {text}ms or {text}m"));
    }
    let scale = if unit.is_empty() { Some(1) } else { UNITS.iter().find(|(name, _)| *name == unit).map(|(_, by)| *by) };
    let found = scale.and_then(|scale| times(digits, scale));
    found.ok_or_else(|| format!("{text}: invalid duration; examples: 10s, 250ms, 5m, 1h"))
}

/// Parses an id: 16 hexadecimal digits as in JSON; or decimal.
pub(crate) fn id(text: &str) -> Result<Number, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hexadecimal = digits.len() == 16 || digits.len() < text.len();
    let number = if is_hexadecimal { u64::from_str_radix(digits, 16) } else { text.parse() };
    number.map(Number::Whole).map_err(|_| format!("{text}: invalid id; expected one such as 0123456789abcdef"))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// Multiplies exactly, if the result is an integer.
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

/// Parses an address without prefix.
pub(crate) fn host(text: &str) -> Result<Network, String> {
    if text.contains('/') {
        return Err(format!("{text} is a network; write net {text}"));
    }
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("{text}: invalid address (names are not resolved); examples: 10.0.0.1, 2001:db8::1"))?;
    Ok((address, if address.is_ipv6() { 128 } else { 32 }))
}

/// Parses a network: with a prefix length, with a mask, or fewer than four numbers, as in pcap-filter.
pub(crate) fn network(text: &str, mask: Option<&str>) -> Result<Network, String> {
    let wrong = || format!("{text}: invalid network; examples: 10.0.0.0/8, 192.168, 2001:db8::/32");
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let parts = address.split('.').count();
    let is_short = !address.contains(':') && parts < 4;
    let padded = if is_short { format!("{address}{}", ".0".repeat(4 - parts)) } else { address.to_owned() };
    let address: IpAddr = padded.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv6() { 128 } else { 32 };
    let bits = match (length, mask) {
        (Some(_), Some(_)) => return Err(format!("{text} has a prefix length; remove mask")),
        (Some(length), None) => length.parse().map_err(|_| wrong())?,
        (None, Some(mask)) => {
            let mask: Ipv4Addr =
                mask.parse().map_err(|_| format!("{mask}: invalid mask; expected one such as 255.255.0.0"))?;
            let ones = mask.to_bits().leading_ones();
            if address.is_ipv6() || mask.to_bits().count_ones() != ones {
                return Err(format!("{mask}: not a contiguous IPv4 mask; write {text}/{ones}"));
            }
            ones as u8
        }
        (None, None) if is_short => 8 * parts as u8,
        (None, None) => width,
    };
    if bits > width {
        return Err(format!("{text}: invalid prefix length; at most {width} bits"));
    }
    let network = masked(address, bits);
    if network == address {
        Ok((address, bits))
    } else {
        Err(format!("{text} has host bits set; write net {network}/{bits} or host {address}"))
    }
}

/// Parses a time step to ns: seconds, or with a unit, such as `60`, `5m`, `1h`.
///
/// # Errors
/// The text is invalid.
pub fn step(text: &str) -> Result<u64, String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let parsed = if has_unit { span(text, true)? } else { span(&format!("{text}s"), true)? };
    match parsed {
        Number::Whole(step) if step > 0 => Ok(step),
        _ => Err(format!("{text}: invalid time step; examples: 10, 5m, 1h")),
    }
}
