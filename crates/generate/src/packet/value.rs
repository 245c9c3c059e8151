//! Values of a field in user syntax: one, or several and their order.

use super::syntax::split;
use crate::stream::MOST_WEIGHTED;
use crate::text_error::TextError;
use linerate_headers::named::Format;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    /// Set of values.
    pub set: Set,
    /// Order of values over frames.
    pub order: Order,
    /// Number of successive frames with the same value, 1 or more.
    pub every: u64,
    /// Link name; fields with the same link move together.
    pub link: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Set {
    /// A single value.
    One(u128),
    /// Arithmetic sequence.
    Range {
        start: u128,
        /// Difference between successive values; may be negative.
        step: i128,
        /// Number of values; 0: 2^128.
        count: u128,
    },
    /// Listed values.
    List(Vec<u128>),
}

/// Order of values over frames.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// One after the other, then from the first again.
    InTurn,
    /// At random, equally likely.
    Random,
    /// At random by weights.
    Weighted(Vec<f64>),
    /// At random by Zipf's law: value i has the weight 1 / (i + 1)^exponent.
    Zipf(f64),
}

impl Set {
    /// Returns the number of values; 0: 2^128.
    pub(super) fn count(&self) -> u128 {
        match self {
            Set::One(_) => 1,
            Set::Range { count, .. } => *count,
            Set::List(values) => values.len() as u128,
        }
    }
}

/// Parses the values of a field with `bits` bits; `part` is within `text`.
pub(super) fn values(text: &str, part: &str, format: Format, bits: u32) -> Result<Values, TextError> {
    let mut values = Values { set: Set::One(0), order: Order::InTurn, every: 1, link: None };
    let mut rest = part.trim();
    while let Some((front, word)) = rest.rsplit_once(char::is_whitespace) {
        if let Some(link) = word.strip_prefix('@').filter(|link| !link.is_empty()) {
            values.link = Some(link.to_owned());
        } else if word == "random" {
            values.order = Order::Random;
        } else if let Some(number) = front.trim_end().strip_suffix("every").and_then(|_| word.parse().ok()) {
            values.every = number;
            rest = front.trim_end().trim_end_matches("every").trim_end();
            continue;
        } else {
            break;
        }
        rest = front.trim_end();
    }
    if values.every == 0 {
        return Err(TextError::at(text, part, "invalid every; expected 1 frame or more"));
    }
    let reader = Reader { text, format, bits };
    reader.set(rest, &mut values)?;
    if values.every > 1 && values.order != Order::InTurn {
        return Err(TextError::at(text, part, "every needs values in turn"));
    }
    Ok(values)
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    text: &'a str,
    format: Format,
    bits: u32,
}

impl Reader<'_> {
    fn set(self, part: &str, values: &mut Values) -> Result<(), TextError> {
        if let Some(inside) = call(part, "random") {
            (values.set, values.order) = (self.range(inside)?, Order::Random);
        } else if let Some(inside) = call(part, "zipf") {
            let (range, exponent) = inside.rsplit_once(',').unwrap_or((inside, "1"));
            let exponent =
                exponent.trim().parse().ok().filter(|exponent: &f64| exponent.is_finite() && *exponent >= 0.0);
            let wrong =
                || TextError::at(self.text, part, "expected zipf(start..end, exponent), such as zipf(1..1000, 1.1)");
            (values.set, values.order) = (self.range(range)?, Order::Zipf(exponent.ok_or_else(wrong)?));
            if !(1..=MOST_WEIGHTED as u128).contains(&values.set.count()) {
                return Err(TextError::at(
                    self.text,
                    part,
                    format!("too many values; zipf takes at most {MOST_WEIGHTED}"),
                ));
            }
        } else if let Some(inside) = part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            self.list(inside, values)?;
        } else if part == "random" {
            let count = if self.bits == 128 { 0 } else { 1 << self.bits };
            (values.set, values.order) = (Set::Range { start: 0, step: 1, count }, Order::Random);
        } else if part.contains("..") || part.contains('/') {
            values.set = self.range(part)?;
        } else {
            values.set = Set::One(self.one(part)?);
        }
        Ok(())
    }

    /// Parses `start..end`, `start..end/step`, or all addresses of a network: `address/length`.
    fn range(self, part: &str) -> Result<Set, TextError> {
        let part = part.trim();
        let Some((start, rest)) = part.split_once("..") else { return self.network(part) };
        let (end, step) = match rest.split_once('/') {
            Some((end, step)) => (end, self.format.plain().parse(step.trim())),
            None => (rest, Some(1)),
        };
        self.check_ends(part, start.trim(), end.trim())?;
        let (start, end) = (self.one(start)?, self.one(end)?);
        let step = step.filter(|step| (1..=i128::MAX as u128).contains(step));
        let step = step.ok_or_else(|| {
            TextError::at(self.text, part, "invalid step; expected 1 or more (start above end counts down)")
        })?;
        let count = (start.abs_diff(end) / step).wrapping_add(1);
        Ok(Set::Range { start, step: if start <= end { step as i128 } else { -(step as i128) }, count })
    }

    /// Rejects a range from an address to a number: that is nearly always meant as the last part of another address.
    fn check_ends(self, part: &str, start: &str, end: &str) -> Result<(), TextError> {
        let separator = match self.format.plain() {
            Format::Ipv4 => '.',
            Format::Ipv6 | Format::Mac => ':',
            _ => return Ok(()),
        };
        let meant = match (start.rsplit_once(separator), end.rsplit_once(separator)) {
            (Some((front, _)), None) => format!("{start}..{front}{separator}{end}"),
            (None, Some((front, _))) => format!("{front}{separator}{start}..{end}"),
            _ => return Ok(()),
        };
        let is_range = meant.split("..").all(|address| self.format.parse(address).is_some());
        let advice = if is_range {
            format!("did you mean {meant}?")
        } else {
            format!("expected {} on both sides", self.format.example())
        };
        Err(TextError::at(self.text, part, format!("range from an address to a number; {advice}")))
    }

    fn network(self, part: &str) -> Result<Set, TextError> {
        let wrong = || {
            let network = match self.format.plain() {
                Format::Ipv4 => " or a network such as 198.18.0.0/24",
                Format::Ipv6 => " or a network such as 2001:2::/64",
                _ => "",
            };
            TextError::at(self.text, part, format!("expected start..end or start..end/step{network}"))
        };
        let (address, length) = part.split_once('/').ok_or_else(wrong)?;
        let is_address = matches!(self.format.plain(), Format::Ipv4 | Format::Ipv6);
        let length = length.trim().parse().ok().filter(|length: &u32| is_address && *length <= self.bits);
        let host = self.bits - length.ok_or_else(wrong)?;
        let (address, mask) = (self.one(address)?, if host == 0 { 0 } else { u128::MAX >> (128 - host) });
        Ok(Set::Range { start: address & !mask, step: 1, count: mask.wrapping_add(1) })
    }

    /// Parses values separated by commas, each optionally with a weight after a colon or an `x`.
    fn list(self, inside: &str, values: &mut Values) -> Result<(), TextError> {
        let (mut list, mut weights, mut weighted) = (Vec::new(), Vec::new(), false);
        for item in split(self.text, inside, ',')? {
            let (value, weight) = match self.one(item) {
                Ok(value) => (value, None),
                Err(wrong) => {
                    let parts = item.rsplit_once([':', 'x']).map(|(value, weight)| (value, weight.trim().parse().ok()));
                    let (value, Some(weight)) = parts.ok_or_else(|| wrong.clone())? else { return Err(wrong) };
                    (self.one(value)?, Some(weight))
                }
            };
            list.push(value);
            weights.push(weight.unwrap_or(1.0));
            weighted |= weight.is_some();
        }
        if list.len() > MOST_WEIGHTED {
            return Err(TextError::at(
                self.text,
                inside,
                format!("too many values; a list may have at most {MOST_WEIGHTED}"),
            ));
        }
        if weighted {
            let right = weights.iter().all(|weight: &f64| weight.is_finite() && *weight >= 0.0);
            if !right || weights.iter().sum::<f64>() <= 0.0 {
                return Err(TextError::at(self.text, inside, "invalid weights; expected numbers from 0 on, not all 0"));
            }
            values.order = Order::Weighted(weights);
        }
        values.set = Set::List(list);
        Ok(())
    }

    fn one(self, part: &str) -> Result<u128, TextError> {
        let part = part.trim();
        let most = u128::MAX >> (128 - self.bits);
        if let Some((start, end)) = part.split_once('-')
            && [start, end].iter().all(|end| self.format.parse(end.trim()).is_some())
        {
            let advice = format!("invalid range; did you mean {}..{}?", start.trim(), end.trim());
            return Err(TextError::at(self.text, part, advice));
        }
        match self.format.parse(part) {
            Some(value) if value <= most => Ok(value),
            Some(_) => Err(TextError::at(
                self.text,
                part,
                format!("too large for {} bits; expected at most {most}", self.bits),
            )),
            None => Err(TextError::at(self.text, part, format!("expected {}", self.format.example()))),
        }
    }
}

/// Returns the text in the parentheses after a word.
pub(super) fn call<'a>(part: &'a str, word: &str) -> Option<&'a str> {
    part.strip_prefix(word)?.trim_start().strip_prefix('(')?.strip_suffix(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: Format, bits: u32) -> Result<Values, TextError> {
        values(text, text, format, bits)
    }

    #[test]
    fn values_are_parsed_as_users_write_them() {
        let range = |start, step, count| Set::Range { start, step, count };
        for (text, format, bits, set, order) in [
            ("7", Format::Number, 8, Set::One(7), Order::InTurn),
            ("1..9", Format::Number, 8, range(1, 1, 9), Order::InTurn),
            ("9..1/4", Format::Number, 8, range(9, -4, 3), Order::InTurn),
            ("1024..65535 random", Format::Number, 16, range(1024, 1, 64512), Order::Random),
            ("random(5..6)", Format::Number, 16, range(5, 1, 2), Order::Random),
            ("random", Format::Ipv6, 128, range(0, 1, 0), Order::Random),
            ("zipf(1..10, 1.5)", Format::Number, 16, range(1, 1, 10), Order::Zipf(1.5)),
            ("[1, 2,7]", Format::Number, 8, Set::List(vec![1, 2, 7]), Order::InTurn),
            ("[1:3, 2]", Format::Number, 8, Set::List(vec![1, 2]), Order::Weighted(vec![3.0, 1.0])),
            ("[::1 x3, ::2]", Format::Ipv6, 128, Set::List(vec![1, 2]), Order::Weighted(vec![3.0, 1.0])),
            ("10.0.0.1..10.0.0.9/4", Format::InvertedIpv4, 32, range(0xf5ff_fffe, -4, 3), Order::InTurn),
            ("10.0.0.7/30", Format::Ipv4, 32, range(0x0a00_0004, 1, 4), Order::InTurn),
            ("10.0.0.1..10.0.255.1/0.0.1.0", Format::Ipv4, 32, range(0x0a00_0001, 256, 256), Order::InTurn),
            ("::/0", Format::Ipv6, 128, range(0, 1, 0), Order::InTurn),
            ("02:00:00:00:00:01..02:00:00:00:00:ff", Format::Mac, 48, range(2 << 40 | 1, 1, 255), Order::InTurn),
        ] {
            let values = read(text, format, bits).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
            assert_eq!((values.set, values.order), (set, order), "{text}");
        }
        let linked = read("1..9 every 10 @client", Format::Number, 8).unwrap();
        assert_eq!((linked.every, linked.link.as_deref()), (10, Some("client")));
    }

    #[test]
    fn errors_name_valid_values() {
        for (text, expected) in [
            ("256", "at most 255"),
            ("x", "a number such as 7"),
            ("1..", "a number such as"),
            ("1..9/0", "expected 1 or more"),
            ("[1:x]", "a number such as"),
            ("[1:0]", "not all 0"),
            ("[]", "a number such as"),
            ("1..9 every 0", "1 frame or more"),
            ("random(1..9) every 3", "in turn"),
            ("zipf(1..9, x)", "zipf(start..end"),
            ("1/2", "start..end"),
        ] {
            let wrong = read(text, Format::Number, 8).unwrap_err();
            assert!(wrong.what.contains(expected), "{text}: {wrong}");
        }
        for (text, format, bits, meant) in [
            ("10.0.0.1..100", Format::Ipv4, 32, "did you mean 10.0.0.1..10.0.0.100?"),
            ("10.0.0.1 .. 100/2 random", Format::Ipv4, 32, "did you mean 10.0.0.1..10.0.0.100?"),
            ("1..10.0.0.9", Format::Ipv4, 32, "did you mean 10.0.0.1..10.0.0.9?"),
            ("10.0.0.1..256", Format::Ipv4, 32, "an IPv4 address such as 198.18.0.1 on both sides"),
            ("zipf(10.0.0.1..0x64, 1)", Format::Ipv4, 32, "on both sides"),
            ("2001:2::1..ff", Format::Ipv6, 128, "did you mean 2001:2::1..2001:2::ff?"),
            ("02:00:00:00:00:01..10", Format::Mac, 48, "did you mean 02:00:00:00:00:01..02:00:00:00:00:10?"),
        ] {
            let wrong = read(text, format, bits).expect_err(text);
            assert!(wrong.what.contains(meant), "{text}: {wrong}");
        }
        assert_eq!(read("1..100", Format::Ipv4, 32).unwrap().set.count(), 100, "a range of plain numbers is valid");
        assert!(read("10.0.0.0/33", Format::Ipv4, 32).unwrap_err().what.contains("198.18.0.0/24"));
    }
}
