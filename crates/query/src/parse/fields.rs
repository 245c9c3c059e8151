//! Comparisons of fields.

use super::keywords::{network, protocol};
use super::{Direction, ParseError, ParseResult, Parser, Type, among, compare, directed, negated};
use crate::columns::{Id, Kind, all, own};
use crate::filter::{Filter, Match, Test};
use crate::names::{NamedColumns, PROTOCOLS, known, named, usual};
use crate::networks::Networks;
use crate::quantity::{Number, Quantity};
use crate::values;
use linerate_burst::text::nearest;
use std::collections::BTreeSet;

impl Parser {
    /// Parses a field, or a quantity derived from several.
    pub(super) fn field(&mut self, direction: Direction) -> ParseResult {
        let Some(word) = self.word(0) else { return Err(self.wrong("missing field")) };
        let quantity = match (word.as_str(), direction) {
            ("bps", Direction::Either) => Some(Quantity::Bps),
            ("pps", Direction::Either) => Some(Quantity::Pps),
            ("bpp", Direction::Either) => Some(Quantity::Bpp),
            ("packets" | "bytes" | "frame_bytes" | "packet_bytes" | "payload_bytes", Direction::Either) => {
                let name = if word == "bytes" { "frame_bytes" } else { word.as_str() };
                let [one, other] = ["orig_", "resp_"].map(|side| own(&format!("{side}{name}")));
                Some(Quantity::Sum(one, other))
            }
            _ => None,
        };
        if let Some(quantity) = quantity {
            self.at += 1;
            let (is_not, filter) = self.compared(quantity, &word, Kind::Number, "")?;
            return Ok(negated(is_not, filter));
        }
        let Some(found) = named(&word) else {
            let words =
                ["host", "net", "port", "portrange", "proto", "flags", "packets", "bps", "pps", "bpp", "and", "not"];
            let words = words.map(str::to_owned).into_iter().chain(known());
            let words = words.chain(PROTOCOLS.iter().map(|(name, _)| (*name).to_owned()));
            let near = usual(&word).or_else(|| nearest(&word, words));
            let near = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
            return Err(self.wrong(format!("{word}: no such keyword or field{near}")));
        };
        let name_at = self.place();
        self.at += 1;
        match (found, direction) {
            (NamedColumns::One(id), Direction::Either) => {
                let (is_not, filter) = self.tested(id, &word, name_at)?;
                Ok(negated(is_not, filter))
            }
            (NamedColumns::One(_), _) => {
                Err(ParseError::new(name_at, format!("{word} has no direction; remove src or dst")))
            }
            (NamedColumns::Both(ids), direction) => {
                let begin = self.at;
                let [(is_not, one), (_, other)] = {
                    let one = self.tested(ids[0], &word, name_at)?;
                    self.at = begin;
                    [one, self.tested(ids[1], &word, name_at)?]
                };
                // With either direction, `!=` requires both to differ.
                Ok(negated(is_not, directed(direction, |side| [&one, &other][side].clone())))
            }
        }
    }

    /// Parses the comparison of a column; the bool negates it.
    pub(super) fn tested(&mut self, id: Id, word: &str, name_at: usize) -> Result<(bool, Filter), ParseError> {
        let column = &all()[id];
        let is_compared = self.is_sign(&["=", "==", "!=", "<", "<=", ">", ">=", "~"])
            || self.is_word(&["in", "eq", "ne", "lt", "le", "gt", "ge"]);
        if column.kind() == Kind::List {
            return Err(ParseError::new(name_at, format!("{word} is a list; lists are not supported here")));
        }
        if !is_compared {
            return if column.kind() == Kind::Flag || column.is_nullable {
                Ok((false, Filter::Is(Test::Is(id))))
            } else {
                Err(self.wrong(format!("{word} needs a comparison, such as {word} = {}", example(column.kind()))))
            };
        }
        match column.kind() {
            Kind::Address => {
                let is_not = self.equals()?;
                let mut networks = Networks::default();
                for (at, text) in self.values()? {
                    let kind = if text.contains('/') { Type::Net } else { Type::Host };
                    networks.add(network(kind, at, &text, None)?);
                }
                Ok((is_not, Filter::Is(Test::Within(id, networks))))
            }
            Kind::Text => {
                let by = if self.take(&[], &["~"]) { Match::Part } else { Match::Whole };
                let is_not = by == Match::Whole && self.equals()?;
                let words = if by == Match::Whole { column.field.words() } else { Vec::new() };
                let texts = self.values()?.into_iter().map(|(at, text)| known_word(&words, word, at, text));
                Ok((is_not, Filter::Is(Test::Text(id, by, texts.collect::<Result<_, _>>()?))))
            }
            Kind::Flag => {
                let is_not = self.equals()?;
                let (at, text) = self.value()?;
                let is = match text.as_str() {
                    "true" | "yes" | "1" => true,
                    "false" | "no" | "0" => false,
                    _ => return Err(ParseError::new(at, "expected true or false")),
                };
                Ok((is_not == is, Filter::Is(Test::Is(id))))
            }
            kind => self.compared(Quantity::Column(id), word, kind, column.field.unit),
        }
    }

    /// Parses an operator and a number for a quantity; or `in` and numbers.
    pub(super) fn compared(
        &mut self,
        quantity: Quantity,
        word: &str,
        kind: Kind,
        unit: &str,
    ) -> Result<(bool, Filter), ParseError> {
        let Some(sign) = self.order(&["=", "==", "!=", "<", "<=", ">", ">="]) else {
            if !self.is_word(&["in"]) {
                return Err(self.wrong(format!("{word} needs a number, such as {word} > 10")));
            }
            let Quantity::Column(id) = quantity else {
                return Err(self.wrong(format!("{word} needs a single number, such as {word} > 10")));
            };
            let is_protocol = all()[id].name == "protocol";
            let mut numbers = BTreeSet::new();
            for (at, text) in self.values()? {
                match if is_protocol {
                    Number::Whole(protocol(at, &text)?)
                } else {
                    self.number(at, &text, word, kind, unit)?
                } {
                    Number::Whole(number) => drop(numbers.insert(number)),
                    Number::Real(_) => return Err(ParseError::new(at, "numbers in a list must be whole")),
                }
            }
            return Ok((false, among(id, numbers)));
        };
        let (at, text) = self.value()?;
        let is_protocol = matches!(quantity, Quantity::Column(id) if all()[id].name == "protocol");
        let number = match is_protocol {
            true => Number::Whole(protocol(at, &text)?),
            false => self.number(at, &text, word, kind, unit)?,
        };
        Ok((sign == "!=", compare(quantity, sign, number)))
    }

    pub(super) fn number(
        &self,
        at: usize,
        text: &str,
        word: &str,
        kind: Kind,
        unit: &str,
    ) -> Result<Number, ParseError> {
        let found = match kind {
            Kind::Time => linerate_pcap::time_parser::parse(text, self.now).map(|time| Number::Whole(time.0)),
            _ if unit == "ns" => values::span(text, word == "duration"),
            _ if word == "id" || word.ends_with("_parent") || word.ends_with(".parent") => values::id(text),
            _ => values::scaled(text),
        };
        found.map_err(|what| ParseError::new(at, what))
    }
}

/// Finds a word in the fixed set of a field, in upper or lower case; without a set any text is valid.
fn known_word(words: &[&str], field: &str, at: usize, text: String) -> Result<String, ParseError> {
    if words.is_empty() {
        return Ok(text);
    }
    let known = words.iter().find(|word| word.eq_ignore_ascii_case(&text));
    let unknown = || ParseError::new(at, format!("{text}: no such {field}; expected {}", words.join(", ")));
    known.map(|word| (*word).to_owned()).ok_or_else(unknown)
}

fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Address => "10.0.0.1",
        Kind::Text => "text",
        Kind::Time => "2026-11-22T10:00",
        _ => "10",
    }
}
