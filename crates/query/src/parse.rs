//! Filter text: pcap-filter's words for hosts, networks, ports and protocols, nfdump's for sizes and flags, and any field.
//!
//! ```text
//! filter    = term { "or" term } | term { "and" term }          a mixture stands in parentheses
//! term      = [ "not" ] ( "(" filter ")" | primitive )
//! primitive = [ protocol ] [ direction ] ( "host" | "net" | "port" | "portrange" ) value | value
//!           | protocol | [ direction ] "flags" letters | [ direction ] field [ sign value | "in" "[" values "]" ]
//! ```

use crate::columns::{Id, Kind, all, own};
use crate::filter::{Filter, Match, Network, Networks, Number, Order, Quantity, Test};
use crate::lex::{Token, tokens};
use crate::names::{Named, PROTOCOLS, SERVICES, known, named, nearest};
use crate::values;
use linerate_burst::Nanos;
use std::collections::BTreeSet;
use std::fmt;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes in front of it.
    pub at: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl Mistake {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        Mistake { at, what: what.into() }
    }

    /// The same for people who see the text: with what stands there.
    pub fn within(&self, text: &str) -> String {
        let rest: String = text.get(self.at..).unwrap_or_default().chars().take(24).collect();
        let place = text.get(..self.at).map_or(0, |before| before.chars().count()) + 1;
        if rest.is_empty() {
            format!("at its end: {}", self.what)
        } else {
            format!("at character {place}, {rest:?}: {}", self.what)
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for Mistake {}

/// Parentheses within parentheses.
const DEEPEST: usize = 64;

/// What a primitive is about; it goes for further values behind `or`, too.
#[derive(Clone, Copy, Debug, PartialEq)]
struct About {
    direction: Direction,
    kind: Type,
}

/// Which of pcap-filter's types.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// Whose value is meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Direction {
    /// That of one of both.
    Either,
    /// Those of both.
    Both,
    /// That of the originator (0), or of the responder.
    Of(usize),
}

impl Filter {
    /// The filter that a text asks for; an empty one asks for every record. `now` is what `now` means in times.
    ///
    /// # Errors
    /// Say where it is wrong, and what would be right.
    pub fn parse(text: &str, now: Nanos) -> Result<Filter, Mistake> {
        let tokens = tokens(text)?;
        let mut parser = Parser { tokens, at: 0, end: text.len(), now, about: None, protocol: None, depth: 0 };
        if parser.tokens.is_empty() {
            return Ok(Filter::every());
        }
        let filter = parser.filter()?;
        match parser.peek() {
            None => Ok(filter),
            Some(Token::Sign(")")) => Err(parser.wrong("this parenthesis was not opened")),
            Some(_) => Err(parser.wrong("between two conditions stands and, or or")),
        }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    now: Nanos,
    about: Option<About>,
    /// The protocol in front of that.
    protocol: Option<Filter>,
    depth: usize,
}

type Parsed = Result<Filter, Mistake>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn word(&self, ahead: usize) -> Option<String> {
        match self.tokens.get(self.at + ahead) {
            Some((_, Token::Word(word))) => Some(word.to_ascii_lowercase()),
            _ => None,
        }
    }

    fn is_sign(&self, signs: &[&str]) -> bool {
        matches!(self.peek(), Some(Token::Sign(sign)) if signs.contains(sign))
    }

    fn is_word(&self, words: &[&str]) -> bool {
        self.word(0).is_some_and(|word| words.contains(&word.as_str()))
    }

    /// Takes the next piece if it is one of these.
    fn take(&mut self, words: &[&str], signs: &[&str]) -> bool {
        let is = self.is_word(words) || self.is_sign(signs);
        self.at += usize::from(is);
        is
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(at, _)| *at)
    }

    fn wrong(&self, what: impl Into<String>) -> Mistake {
        Mistake::new(self.place(), what)
    }

    fn filter(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong(format!("more than {DEEPEST} parentheses within each other")));
        }
        let mut parts = vec![self.term()?];
        let mut is_or = None;
        loop {
            let or = if self.is_word(&["or"]) || self.is_sign(&["||"]) {
                true
            } else if self.is_word(&["and"]) || self.is_sign(&["&&"]) {
                false
            } else {
                break;
            };
            if is_or.is_some_and(|before| before != or) {
                return Err(self.wrong("and beside or is read in two ways; say which by parentheses: (a or b) and c"));
            }
            is_or = Some(or);
            self.at += 1;
            parts.push(self.term()?);
        }
        self.depth -= 1;
        Ok(match (parts.len(), is_or) {
            (1, _) => parts.swap_remove(0),
            (_, Some(true)) => Filter::Any(parts),
            _ => Filter::All(parts),
        })
    }

    fn term(&mut self) -> Parsed {
        let mut is_not = false;
        while self.take(&["not"], &["!"]) {
            is_not = !is_not;
        }
        let found = if self.take(&[], &["("]) {
            let inner = self.filter()?;
            if !self.take(&[], &[")"]) {
                return Err(self.wrong("a closing parenthesis is missing"));
            }
            inner
        } else {
            self.primitive()?
        };
        Ok(if is_not { Filter::Not(Box::new(found)) } else { found })
    }

    fn primitive(&mut self) -> Parsed {
        let Some(word) = self.word(0) else {
            return Err(match self.peek() {
                None => self.wrong("a condition is missing, as in host 10.0.0.1 or bytes > 1M"),
                Some(_) => self.wrong("a condition begins with a word, as in host 10.0.0.1 or bytes > 1M"),
            });
        };
        let is_value = word.starts_with(|c: char| c.is_ascii_digit()) || word.contains(':');
        if is_value {
            let about = match self.about {
                Some(about) => {
                    let rest = self.of(about)?;
                    return Ok(match self.protocol.clone() {
                        Some(protocol) => protocol.and(rest),
                        None => rest,
                    });
                }
                None if word.contains(['.', ':', '/']) => {
                    let kind = if word.contains('/') { Type::Net } else { Type::Host };
                    About { direction: Direction::Either, kind }
                }
                None => return Err(self.wrong("a number of what? as in port 80, or bytes > 80")),
            };
            return self.of(about);
        }
        if word == "any" {
            self.at += 1;
            return Ok(Filter::every());
        }
        if let Some(filter) = self.protocol_word(&word)? {
            return Ok(filter);
        }
        self.protocol = None;
        let direction = self.direction()?;
        self.typed(direction)
    }

    /// A protocol by its name, alone or in front of what it goes for.
    fn protocol_word(&mut self, word: &str) -> Result<Option<Filter>, Mistake> {
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
        const BEHIND: [&str; 12] = [
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
        if !self.is_word(&BEHIND) {
            return Ok(Some(own));
        }
        let direction = self.direction()?;
        let rest = self.typed(direction)?;
        self.protocol = Some(own.clone());
        Ok(Some(own.and(rest)))
    }

    /// `src`, `dst`, `src or dst`, `src and dst`, or nothing.
    fn direction(&mut self) -> Result<Direction, Mistake> {
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

    fn typed(&mut self, direction: Direction) -> Parsed {
        let Some(word) = self.word(0) else { return Err(self.wrong("host, net, port or a field is missing")) };
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
                let about = About { direction, kind };
                self.about = Some(about);
                return self.of(about);
            }
            _ => {
                self.about = None;
                return self.field(direction);
            }
        };
        self.at += 1;
        let about = About { direction, kind };
        self.about = Some(about);
        self.of(about)
    }

    /// Values of one of pcap-filter's types.
    fn of(&mut self, about: About) -> Parsed {
        let About { direction, kind } = about;
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
                let both =
                    text.split_once('-').ok_or_else(|| Mistake::new(at, "a range of ports is written 6000-6008"))?;
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

    /// Letters of TCP flags: all of them are there.
    fn flags(&mut self, direction: Direction) -> Parsed {
        const LETTERS: &str = "FSRPAUEC";
        self.take(&[], &["=", "=="]);
        let (at, text) = self.value()?;
        let mut mask = 0;
        for letter in text.chars().map(|c| c.to_ascii_uppercase()) {
            match LETTERS.find(letter) {
                Some(bit) => mask |= 1 << bit,
                None if letter == 'X' => mask |= 0x3f,
                None => {
                    let text = format!("{letter} is no TCP flag; there are F, S, R, P, A, U, E, C, as in flags SA");
                    return Err(Mistake::new(at, text));
                }
            }
        }
        let ids = ["orig_tcp_flags", "resp_tcp_flags"].map(own);
        let test = |ids: Vec<Id>| Filter::Is(Test::Bits(ids, mask));
        Ok(match direction {
            Direction::Either => test(ids.to_vec()),
            Direction::Both => test(vec![ids[0]]).and(test(vec![ids[1]])),
            Direction::Of(side) => test(vec![ids[side]]),
        })
    }

    /// A field, or one of the quantities made of several.
    fn field(&mut self, direction: Direction) -> Parsed {
        let Some(word) = self.word(0) else { return Err(self.wrong("a field is missing")) };
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
            let near = nearest(&word, words).map_or(String::new(), |near| format!("; {near} is"));
            return Err(self.wrong(format!("{word} is no word of filters, and no field{near}")));
        };
        let name_at = self.place();
        self.at += 1;
        match (found, direction) {
            (Named::One(id), Direction::Either) => {
                let (is_not, filter) = self.tested(id, &word, name_at)?;
                Ok(negated(is_not, filter))
            }
            (Named::One(_), _) => {
                Err(Mistake::new(name_at, format!("{word} is not of one direction: leave src or dst out")))
            }
            (Named::Both(ids), direction) => {
                let begin = self.at;
                let [(is_not, one), (_, other)] = {
                    let one = self.tested(ids[0], &word, name_at)?;
                    self.at = begin;
                    [one, self.tested(ids[1], &word, name_at)?]
                };
                // Of either one `!=` says that none is so.
                Ok(negated(is_not, directed(direction, |side| [&one, &other][side].clone())))
            }
        }
    }

    /// A column and what it is compared with; and whether it is not to be so.
    fn tested(&mut self, id: Id, word: &str, name_at: usize) -> Result<(bool, Filter), Mistake> {
        let column = &all()[id];
        let is_compared = self.is_sign(&["=", "==", "!=", "<", "<=", ">", ">=", "~"])
            || self.is_word(&["in", "eq", "ne", "lt", "le", "gt", "ge"]);
        if column.kind() == Kind::List {
            return Err(Mistake::new(name_at, format!("{word} is a list, which is asked for nothing here")));
        }
        if !is_compared {
            return if column.kind() == Kind::Flag || column.is_nullable {
                Ok((false, Filter::Is(Test::Is(id))))
            } else {
                Err(self.wrong(format!("{word} is compared with something, as in {word} = {}", example(column.kind()))))
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
                let texts = self.values()?.into_iter().map(|(_, text)| text).collect();
                Ok((is_not, Filter::Is(Test::Text(id, by, texts))))
            }
            Kind::Flag => {
                let is_not = self.equals()?;
                let (at, text) = self.value()?;
                let is = match text.as_str() {
                    "true" | "yes" | "1" => true,
                    "false" | "no" | "0" => false,
                    _ => return Err(Mistake::new(at, "it is true or false")),
                };
                Ok((is_not == is, Filter::Is(Test::Is(id))))
            }
            kind => self.compared(Quantity::Column(id), word, kind, column.field.unit),
        }
    }

    /// A quantity, a sign, a number; or `in` and numbers.
    fn compared(&mut self, quantity: Quantity, word: &str, kind: Kind, unit: &str) -> Result<(bool, Filter), Mistake> {
        let Some(sign) = self.order(&["=", "==", "!=", "<", "<=", ">", ">="]) else {
            if !self.is_word(&["in"]) {
                return Err(self.wrong(format!("{word} is compared with a number, as in {word} > 10")));
            }
            let Quantity::Column(id) = quantity else {
                return Err(self.wrong(format!("{word} is compared with one number, as in {word} > 10")));
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
                    Number::Real(_) => return Err(Mistake::new(at, "of a list numbers are whole")),
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

    fn number(&self, at: usize, text: &str, word: &str, kind: Kind, unit: &str) -> Result<Number, Mistake> {
        let found = match kind {
            Kind::Time => linerate_record::when::parse(text, self.now).map(|time| Number::Whole(time.0)),
            _ if unit == "ns" => values::span(text, word == "duration"),
            _ if word == "id" || word.ends_with("_parent") || word.ends_with(".parent") => values::id(text),
            _ => values::scaled(text),
        };
        found.map_err(|what| Mistake::new(at, what))
    }

    /// `=` or `in`, or nothing; whether it is `!=`.
    fn equals(&mut self) -> Result<bool, Mistake> {
        if self.is_sign(&["<", "<=", ">", ">=", "~"]) {
            return Err(self.wrong("here it is = or !=, or in and a list: in [ a b ]"));
        }
        Ok(self.order(&["=", "==", "!="]) == Some("!="))
    }

    /// A sign of comparison, or nfdump's word for it.
    fn order(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        const WORDS: [(&str, &str); 6] =
            [("eq", "="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")];
        let sign = match self.peek()? {
            Token::Sign(sign) => signs.iter().find(|known| *known == sign).copied(),
            Token::Word(word) => WORDS.iter().find(|(name, _)| name == word).map(|(_, sign)| *sign),
            Token::Quoted(_) => None,
        }?;
        self.at += 1;
        Some(sign)
    }

    /// A value, or `in` and several in brackets.
    fn values(&mut self) -> Result<Vec<(usize, String)>, Mistake> {
        if !self.take(&["in"], &[]) {
            return Ok(vec![self.value()?]);
        }
        let closing = if self.take(&[], &["["]) {
            "]"
        } else if self.take(&[], &["("]) {
            ")"
        } else {
            return Err(self.wrong("a list stands in brackets: in [ 10.0.0.1 10.0.0.2 ]"));
        };
        let mut values = Vec::new();
        while !self.take(&[], &[closing]) {
            if self.peek().is_none() {
                return Err(self.wrong(format!("the list has no end: {closing} is missing")));
            }
            values.push(self.value()?);
            self.take(&[], &[",", ";"]);
        }
        if values.is_empty() { Err(self.wrong("the list is empty")) } else { Ok(values) }
    }

    fn value(&mut self) -> Result<(usize, String), Mistake> {
        let place = self.place();
        let text = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Quoted(text)) => text.clone(),
            _ => return Err(self.wrong("a value is missing")),
        };
        self.at += 1;
        Ok((place, text))
    }
}

fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Address => "10.0.0.1",
        Kind::Text => "text",
        Kind::Time => "2026-11-22T10:00",
        _ => "10",
    }
}

fn negated(is_not: bool, filter: Filter) -> Filter {
    if is_not { Filter::Not(Box::new(filter)) } else { filter }
}

fn directed(direction: Direction, of: impl Fn(usize) -> Filter) -> Filter {
    match direction {
        Direction::Either => Filter::Any(vec![of(0), of(1)]),
        Direction::Both => Filter::All(vec![of(0), of(1)]),
        Direction::Of(side) => of(side),
    }
}

fn among(id: Id, numbers: impl IntoIterator<Item = u64>) -> Filter {
    Filter::Is(Test::Among(id, numbers.into_iter().collect()))
}

/// What has ports, as pcap-filter has it.
fn transports() -> Filter {
    among(own("protocol"), [6, 17, 132])
}

/// What is absent passes none, whatever the sign.
fn compare(quantity: Quantity, sign: &str, with: Number) -> Filter {
    let is = |order| Filter::Is(Test::Compare(quantity, order, with));
    match sign {
        "<" => is(Order::Less),
        ">" => is(Order::Greater),
        "<=" => Filter::Any(vec![is(Order::Less), is(Order::Equal)]),
        ">=" => Filter::Any(vec![is(Order::Greater), is(Order::Equal)]),
        _ => is(Order::Equal),
    }
}

fn network(kind: Type, at: usize, text: &str, mask: Option<&str>) -> Result<Network, Mistake> {
    let found = match kind {
        Type::Net => values::network(text, mask),
        _ => values::host(text),
    };
    found.map_err(|what| Mistake::new(at, what))
}

fn port(at: usize, text: &str) -> Result<u16, Mistake> {
    let service = SERVICES.iter().find(|(name, _)| *name == text.to_ascii_lowercase()).map(|(_, port)| *port);
    service.or_else(|| text.parse().ok()).ok_or_else(|| {
        Mistake::new(at, format!("{text} is no port: a number to 65535, or a name as domain, http, https, ssh"))
    })
}

fn protocol(at: usize, text: &str) -> Result<u64, Mistake> {
    let lower = text.to_ascii_lowercase();
    let known = PROTOCOLS.iter().find(|(name, _)| *name == lower).map(|(_, number)| *number);
    known.or_else(|| text.parse().ok()).map(u64::from).ok_or_else(|| {
        Mistake::new(
            at,
            format!("{text} is no protocol: a number to 255, or a name as tcp, udp, icmp, icmp6, sctp, gre"),
        )
    })
}
