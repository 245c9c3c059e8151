//! Parsers of numbers and addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Parses a number, decimal or with `0x`, up to `most`.
pub(super) fn number(key: &str, text: &str, most: u64) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard library accepts signs, which are invalid here.
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    parsed
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("{key}: invalid number {text:?}; expected 0 to {most}"))
}

/// Parses a number with an optional mask: `N` or `N/MASK`.
pub(super) fn masked(key: &str, text: &str, most: u64) -> Result<(u64, u64), String> {
    match text.split_once('/') {
        Some((value, mask)) => Ok((number(key, value, most)?, number(key, mask, most)?)),
        None => Ok((number(key, text, most)?, most)),
    }
}

/// Parses a MAC: six bytes in hexadecimal.
pub(super) fn mac(key: &str, text: &str) -> Result<u64, String> {
    let wrong = || format!("{key}: invalid MAC address {text:?}; expected one such as 02:00:00:00:00:01");
    let (mut mac, mut parts) = (0, 0);
    for part in text.split(':') {
        let is_hex = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let byte = u64::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or_else(wrong)?;
        (mac, parts) = (mac << 8 & 0xffff_ffff_ffff | byte, parts + 1);
    }
    (parts == 6).then_some(mac).ok_or_else(wrong)
}

/// Parses a MAC with an optional mask.
pub(super) fn masked_mac(key: &str, text: &str) -> Result<(u64, u64), String> {
    match text.split_once('/') {
        Some((value, mask)) => Ok((mac(key, value)?, mac(key, mask)?)),
        None => Ok((mac(key, text)?, 0xffff_ffff_ffff)),
    }
}

pub(super) fn v4(key: &str, text: &str) -> Result<u32, String> {
    text.parse::<Ipv4Addr>().map(Ipv4Addr::to_bits).map_err(|_| format!("{key}: invalid IPv4 address {text:?}"))
}

/// Parses an IPv4 address with an optional prefix length or mask.
pub(super) fn masked_v4(key: &str, text: &str) -> Result<(u32, u32), String> {
    let Some((address, mask)) = text.split_once('/') else { return Ok((v4(key, text)?, u32::MAX)) };
    let address = v4(key, address)?;
    let mask = if mask.contains('.') { v4(key, mask)? } else { prefix(number(key, mask, 32)?, 32) as u32 };
    Ok((address, mask))
}

pub(super) fn v6(key: &str, text: &str) -> Result<u128, String> {
    text.parse::<Ipv6Addr>().map(Ipv6Addr::to_bits).map_err(|_| format!("{key}: invalid IPv6 address {text:?}"))
}

/// Parses an IPv6 address with an optional prefix length or mask.
pub(super) fn masked_v6(key: &str, text: &str) -> Result<(u128, u128), String> {
    let Some((address, mask)) = text.split_once('/') else { return Ok((v6(key, text)?, u128::MAX)) };
    let address = v6(key, address)?;
    let mask = if mask.contains(':') { v6(key, mask)? } else { prefix(number(key, mask, 128)?, 128) };
    Ok((address, mask))
}

/// Returns a mask of the first `bits` of `of`.
fn prefix(bits: u64, of: u32) -> u128 {
    let rest = of - bits as u32;
    let all = if of == 128 { u128::MAX } else { (1 << of) - 1 };
    if rest == 128 { 0 } else { all >> rest << rest }
}
