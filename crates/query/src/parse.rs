//! Filter text: pcap-filter's keywords for hosts, networks, ports and protocols, nfdump's for sizes and flags, and any
//! field.
//!
//! ```text
//! filter    = term { "or" term } | term { "and" term }          a mixture needs parentheses
//! term      = [ "not" ] ( "(" filter ")" | primitive )
//! primitive = [ protocol ] [ direction ] ( "host" | "net" | "port" | "portrange" ) value | value
//!           | protocol | [ direction ] "flags" letters | [ direction ] field [ sign value | "in" "[" values "]" ]
//! ```

mod fields;
mod keywords;

use crate::columns::Id;
use crate::filter::{Filter, Test};
use crate::lex::{Token, tokens};
use crate::quantity::{Number, Order, Quantity};
use linerate_burst::Nanos;
use std::fmt;

/// A mistake in a text, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Offset in bytes.
    pub at: usize,
    /// The problem and a remedy.
    pub what: String,
}

impl ParseError {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        ParseError { at, what: what.into() }
    }

    /// Formats it for a user who sees the text: with a quotation.
    pub fn within(&self, text: &str) -> String {
        let rest: String = text.get(self.at..).unwrap_or_default().chars().take(24).collect();
        let place = text.get(..self.at).map_or(0, |before| before.chars().count()) + 1;
        if rest.is_empty() {
            format!("at the end: {}", self.what)
        } else {
            format!("at character {place}, {rest:?}: {}", self.what)
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for ParseError {}

/// Maximum depth of parentheses.
const DEEPEST: usize = 64;

/// Type and direction of a primitive; also used for further values after `or`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Qualifiers {
    direction: Direction,
    kind: Type,
}

/// Type keyword of pcap-filter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// Direction of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Direction {
    /// Either direction.
    Either,
    /// Both directions.
    Both,
    /// The originator (0), or the responder (1).
    Of(usize),
}

impl Filter {
    /// Parses a filter; an empty text matches every record. `now` is the value of `now` in times.
    ///
    /// # Errors
    /// The text is invalid; the error has the position and a remedy.
    pub fn parse(text: &str, now: Nanos) -> Result<Filter, ParseError> {
        let tokens = tokens(text)?;
        let mut parser = Parser { tokens, at: 0, end: text.len(), now, about: None, protocol: None, depth: 0 };
        if parser.tokens.is_empty() {
            return Ok(Filter::every());
        }
        let filter = parser.filter()?;
        match parser.peek() {
            None => Ok(filter),
            Some(Token::Sign(")")) => Err(parser.wrong("unmatched closing parenthesis")),
            Some(_) => Err(parser.wrong("expected \"and\" or \"or\" between two conditions")),
        }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    now: Nanos,
    about: Option<Qualifiers>,
    /// The protocol keyword before it.
    protocol: Option<Filter>,
    depth: usize,
}

type ParseResult = Result<Filter, ParseError>;

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

    /// Takes the next token if it is one of these.
    fn take(&mut self, words: &[&str], signs: &[&str]) -> bool {
        let is = self.is_word(words) || self.is_sign(signs);
        self.at += usize::from(is);
        is
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(at, _)| *at)
    }

    fn wrong(&self, what: impl Into<String>) -> ParseError {
        ParseError::new(self.place(), what)
    }

    fn filter(&mut self) -> ParseResult {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong(format!("parentheses nested deeper than {DEEPEST}")));
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
                return Err(self.wrong("and mixed with or is ambiguous; add parentheses, such as (a or b) and c"));
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

    fn term(&mut self) -> ParseResult {
        let mut is_not = false;
        while self.take(&["not"], &["!"]) {
            is_not = !is_not;
        }
        let found = if self.take(&[], &["("]) {
            let inner = self.filter()?;
            if !self.take(&[], &[")"]) {
                return Err(self.wrong("missing closing parenthesis"));
            }
            inner
        } else {
            match self.primitive()? {
                // As in nfdump, for which `not flags AFRPU` means that none of them is set.
                Filter::Is(Test::Bits(ids, mask)) if is_not => {
                    let bits = (0..u64::BITS).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
                    let none = bits.map(|bit| Filter::Not(Box::new(Filter::Is(Test::Bits(ids.clone(), bit)))));
                    return Ok(Filter::All(none.collect()));
                }
                found => found,
            }
        };
        Ok(if is_not { Filter::Not(Box::new(found)) } else { found })
    }

    fn primitive(&mut self) -> ParseResult {
        let Some(word) = self.word(0) else {
            return Err(match self.peek() {
                None => self.wrong("missing condition; examples: host 10.0.0.1, bytes > 1M"),
                Some(_) => self.wrong("a condition must begin with a word; examples: host 10.0.0.1, bytes > 1M"),
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
                    Qualifiers { direction: Direction::Either, kind }
                }
                None => return Err(self.wrong("number without a field; examples: port 80, bytes > 80")),
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

    /// Parses `=` or `in`, or nothing; true for `!=`.
    fn equals(&mut self) -> Result<bool, ParseError> {
        if self.is_sign(&["<", "<=", ">", ">=", "~"]) || self.is_word(&["lt", "le", "gt", "ge"]) {
            return Err(self.wrong("expected =, != or a list such as in [ a b ]"));
        }
        Ok(self.order(&["=", "==", "!="]) == Some("!="))
    }

    /// Parses a comparison operator, or nfdump's word for it.
    fn order(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        const WORDS: [(&str, &str); 6] =
            [("eq", "="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")];
        let sign = match self.peek()? {
            Token::Sign(sign) => signs.iter().find(|known| *known == sign).copied(),
            Token::Word(word) => {
                let word = WORDS.iter().find(|(name, _)| name == word);
                word.map(|(_, sign)| *sign).filter(|sign| signs.contains(sign))
            }
            Token::Quoted(_) => None,
        }?;
        self.at += 1;
        Some(sign)
    }

    /// Parses a value, or `in` and several in brackets.
    fn values(&mut self) -> Result<Vec<(usize, String)>, ParseError> {
        if !self.take(&["in"], &[]) {
            return Ok(vec![self.value()?]);
        }
        let closing = if self.take(&[], &["["]) {
            "]"
        } else if self.take(&[], &["("]) {
            ")"
        } else {
            return Err(self.wrong("expected a list in brackets, such as in [ 10.0.0.1 10.0.0.2 ]"));
        };
        let mut values = Vec::new();
        while !self.take(&[], &[closing]) {
            if self.peek().is_none() {
                return Err(self.wrong(format!("unterminated list: {closing} is missing")));
            }
            values.push(self.value()?);
            self.take(&[], &[",", ";"]);
        }
        if values.is_empty() { Err(self.wrong("empty list")) } else { Ok(values) }
    }

    fn value(&mut self) -> Result<(usize, String), ParseError> {
        let place = self.place();
        let text = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Quoted(text)) => text.clone(),
            _ => return Err(self.wrong("missing value")),
        };
        self.at += 1;
        Ok((place, text))
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

/// An absent value passes no comparison, whatever the operator.
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
