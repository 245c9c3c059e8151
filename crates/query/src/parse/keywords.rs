//! Keywords of pcap-filter, and TCP flags.

use super::{Direction, ParseError, ParseResult, Parser, Qualifiers, Type, among, compare, directed, negated};
use crate::columns::{Id, own};
use crate::filter::{Filter, Test};
use crate::names::{PROTOCOLS, SERVICES};
use crate::networks::{Network, Networks};
use crate::quantity::{Number, Quantity};
use crate::values;

impl Parser {
    /// Parses a protocol name, optionally before a primitive.
    pub(super) fn protocol_word(&mut self, word: &str) -> Result<Option<Filter>, ParseError> {
        let version = match word {
            "ip" if matches!(self.word(1), Some(next) if next == "in" || next.starts_with(|c: char| c.is_ascii_digit())) =>
            {
                return Ok(None);
            }
            "ip" | "ipv4" | "inet" => Some(false),
            "ip6" | "ipv6" | "inet6" => Some(true),
            _ => None,
        };
        let number = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
        let own = match (version, number) {
            (Some(version), _) => Filter::Is(Test::Version(version)),
            (None, Some(number)) => among(own("protocol"), [number.into()]),
            (None, None) => return Ok(None),
        };
        self.at += 1;
        const NEXT: [&str; 12] = [
            "src",
            "dst",
            "orig",
            "resp",
            "source",
            "destination",
            "host",
            "net",
            "port",
            "portrange",
            "proto",
            "flags",
        ];
        if !self.is_word(&NEXT) {
            return Ok(Some(own));
        }
        let direction = self.direction()?;
        let rest = self.typed(direction)?;
        self.protocol = Some(own.clone());
        Ok(Some(own.and(rest)))
    }

    /// Parses `src`, `dst`, `src or dst`, `src and dst`, or nothing.
    pub(super) fn direction(&mut self) -> Result<Direction, ParseError> {
        let side = |word: Option<String>| match word.as_deref() {
            Some("src" | "orig" | "source") => Some(0),
            Some("dst" | "resp" | "destination") => Some(1),
            _ => None,
        };
        let Some(one) = side(self.word(0)) else { return Ok(Direction::Either) };
        self.at += 1;
        match (self.word(0).as_deref(), side(self.word(1))) {
            (Some(between @ ("or" | "and")), Some(other)) if other != one => {
                let both = between == "and";
                self.at += 2;
                Ok(if both { Direction::Both } else { Direction::Either })
            }
            _ => Ok(Direction::Of(one)),
        }
    }

    pub(super) fn typed(&mut self, direction: Direction) -> ParseResult {
        let Some(word) = self.word(0) else { return Err(self.wrong("missing host, net, port or field")) };
        let kind = match word.as_str() {
            "host" | "ip" => Type::Host,
            "net" => Type::Net,
            "port" => Type::Port,
            "portrange" => Type::PortRange,
            "proto" => Type::Protocol,
            "flags" => {
                self.at += 1;
                self.about = None;
                return self.flags(direction);
            }
            word if word.starts_with(|c: char| c.is_ascii_digit()) || word.contains(':') => {
                let kind = if word.contains('/') { Type::Net } else { Type::Host };
                let about = Qualifiers { direction, kind };
                self.about = Some(about);
                return self.of(about);
            }
            _ => {
                self.about = None;
                return self.field(direction);
            }
        };
        self.at += 1;
        let about = Qualifiers { direction, kind };
        self.about = Some(about);
        self.of(about)
    }

    /// Parses the values of one of pcap-filter's types.
    pub(super) fn of(&mut self, about: Qualifiers) -> ParseResult {
        let Qualifiers { direction, kind } = about;
        match kind {
            Type::Host | Type::Net => {
                let is_not = self.equals()?;
                let mut networks = Networks::default();
                for (at, text) in self.values()? {
                    let mask =
                        if kind == Type::Net && self.take(&["mask"], &[]) { Some(self.value()?.1) } else { None };
                    networks.add(network(kind, at, &text, mask.as_deref())?);
                }
                let ids = ["orig_address", "resp_address"].map(own);
                Ok(negated(is_not, directed(direction, |side| Filter::Is(Test::Within(ids[side], networks.clone())))))
            }
            Type::Port => {
                let order = self.order(&["=", "==", "!=", "<", "<=", ">", ">="]);
                let ports =
                    self.values()?.into_iter().map(|(at, text)| port(at, &text)).collect::<Result<Vec<_>, _>>()?;
                let ids = ["orig_port", "resp_port"].map(own);
                let filter = directed(direction, |side| match order {
                    None | Some("=" | "==" | "!=") => among(ids[side], ports.iter().copied().map(u64::from)),
                    Some(sign) => compare(Quantity::Column(ids[side]), sign, Number::Whole(ports[0].into())),
                });
                Ok(transports().and(negated(order == Some("!="), filter)))
            }
            Type::PortRange => {
                let (at, text) = self.value()?;
                let both = text
                    .split_once('-')
                    .ok_or_else(|| ParseError::new(at, "invalid port range; expected one such as 6000-6008"))?;
                let [from, to] = [port(at, both.0)?, port(at, both.1)?];
                let [from, to] = [from.min(to), from.max(to)].map(u64::from);
                let ids = ["orig_port", "resp_port"].map(own);
                Ok(transports().and(directed(direction, |side| {
                    let quantity = Quantity::Column(ids[side]);
                    compare(quantity, ">=", Number::Whole(from)).and(compare(quantity, "<=", Number::Whole(to)))
                })))
            }
            Type::Protocol => {
                let is_not = self.equals()?;
                let numbers = self.values()?.into_iter().map(|(at, text)| protocol(at, &text));
                let numbers = numbers.collect::<Result<Vec<u64>, _>>()?;
                Ok(negated(is_not, among(own("protocol"), numbers)))
            }
        }
    }

    /// Parses letters of TCP flags: all of them must be set.
    pub(super) fn flags(&mut self, direction: Direction) -> ParseResult {
        const LETTERS: &str = "FSRPAUEC";
        self.take(&[], &["=", "=="]);
        let (at, text) = self.value()?;
        let mut mask = 0;
        for letter in text.chars().map(|c| c.to_ascii_uppercase()) {
            match LETTERS.find(letter) {
                Some(bit) => mask |= 1 << bit,
                None if letter == 'X' => mask |= 0x3f,
                None => {
                    let text = format!("{letter}: no such TCP flag; expected F, S, R, P, A, U, E, C, such as flags SA");
                    return Err(ParseError::new(at, text));
                }
            }
        }
        if mask == 0 {
            return Err(ParseError::new(at, "no TCP flag; expected some of F, S, R, P, A, U, E, C, such as flags SA"));
        }
        let ids = ["orig_tcp_flags", "resp_tcp_flags"].map(own);
        let test = |ids: Vec<Id>| Filter::Is(Test::Bits(ids, mask));
        Ok(match direction {
            Direction::Either => test(ids.to_vec()),
            Direction::Both => test(vec![ids[0]]).and(test(vec![ids[1]])),
            Direction::Of(side) => test(vec![ids[side]]),
        })
    }
}

pub(super) fn network(kind: Type, at: usize, text: &str, mask: Option<&str>) -> Result<Network, ParseError> {
    let found = match kind {
        Type::Net => values::network(text, mask),
        _ => values::host(text),
    };
    found.map_err(|what| ParseError::new(at, what))
}

pub(super) fn port(at: usize, text: &str) -> Result<u16, ParseError> {
    let service = SERVICES.iter().find(|(name, _)| *name == text.to_ascii_lowercase()).map(|(_, port)| *port);
    service.or_else(|| text.parse().ok()).ok_or_else(|| {
        ParseError::new(at, format!("{text}: invalid port; expected 0 to 65535 or a name such as domain, http, ssh"))
    })
}

pub(super) fn protocol(at: usize, text: &str) -> Result<u64, ParseError> {
    let lower = text.to_ascii_lowercase();
    let known = PROTOCOLS.iter().find(|(name, _)| *name == lower).map(|(_, number)| *number);
    known.or_else(|| text.parse().ok()).map(u64::from).ok_or_else(|| {
        ParseError::new(
            at,
            format!("{text}: invalid protocol; expected 0 to 255 or a name such as tcp, udp, icmp, gre"),
        )
    })
}

/// Protocols with ports, as in pcap-filter.
fn transports() -> Filter {
    among(own("protocol"), [6, 17, 132])
}
