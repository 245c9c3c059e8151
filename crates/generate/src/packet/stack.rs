//! Layers of a packet: its headers, including implied ones.

use super::payload::{Payload, bytes};
use super::selectors::Pattern;
use super::syntax::{self, Argument, Layer};
use crate::text_error::{TextError, choices};
use linerate_headers::build::{BuildError, Frame, Header, Problem};
use linerate_headers::named::{Form, Format, Kind, PartValues, Value};
use linerate_headers::{EmitError, Link, Protocol, Role};

/// Headers, payload, and bytes after the packet.
pub(super) struct Stack<'a> {
    text: &'a str,
    /// Headers, outermost first; none for a whole frame.
    pub headers: Vec<HeaderSpec<'a>>,
    /// Payload of the innermost header.
    pub payload: Payload,
    /// Changing bytes of the payload.
    pub settings: Vec<Setting<'a>>,
    /// Bytes after the packet, which no length counts.
    pub padding: Vec<u8>,
    /// True if the payload is a whole frame.
    pub whole: bool,
}

pub(super) struct HeaderSpec<'a> {
    /// Kind of header.
    pub kind: &'static Kind,
    /// Name in the text; empty if it was implied.
    pub name: &'a str,
    parts: Vec<(&'static str, OptionValue)>,
    /// Fields with given values.
    pub settings: Vec<Setting<'a>>,
    /// Order of its varying fields.
    pub pattern: Option<Pattern>,
}

/// Field and value in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

enum OptionValue {
    Present,
    Number(u128),
    Bytes(Vec<u8>),
}

impl OptionValue {
    fn value(&self) -> Value<'_> {
        match self {
            OptionValue::Present => Value::Present,
            OptionValue::Number(number) => Value::Number(*number),
            OptionValue::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

/// Reads a frame of a capture file by its name and number (from 1).
pub type Files<'a> = &'a dyn Fn(&str, u64) -> Result<Vec<u8>, String>;

/// Limit on implied and given headers.
const MOST_LAYERS: usize = 64;

impl<'a> Stack<'a> {
    /// Reads the layers of a packet on a link.
    pub(super) fn read(text: &'a str, link: Link, files: Files<'_>) -> Result<Stack<'a>, TextError> {
        // Without a payload the packet ends with its headers, or with the bytes of `raw`; Ethernet pads the frame.
        let empty = Payload { has_length: true, ..Payload::default() };
        let (headers, padding, settings) = (Vec::new(), Vec::new(), Vec::new());
        let mut stack = Stack { text, headers, payload: empty, settings, padding, whole: false };
        let layers = syntax::layers(text)?;
        for (index, layer) in layers.iter().enumerate() {
            let last = layers.len() - 1 - index;
            let following = &layers[index + 1..];
            let end = last == 0 || last == 1 && following[0].name == "padding";
            match layer.name {
                "payload" | "raw" | "file" if !end => {
                    return Err(TextError::at(text, layer.name, "only padding may follow it"));
                }
                "payload" => {
                    stack.payload = Payload::read(text, layer)?;
                    let changes = layer.arguments.iter().filter(|argument| argument.name.starts_with('+'));
                    stack.settings = changes.filter_map(setting).collect();
                }
                "raw" => {
                    stack.payload.bytes = only(text, layer).and_then(|value| bytes(text, value))?;
                    stack.whole = index == 0;
                }
                "file" if index == 0 => {
                    stack.payload.bytes = from_file(text, layer, files)?;
                    stack.whole = true;
                }
                "file" => return Err(TextError::at(text, layer.name, "file must be the first layer")),
                "padding" if last == 0 => stack.padding = only(text, layer).and_then(|value| bytes(text, value))?,
                "padding" => return Err(TextError::at(text, layer.name, "padding must be the last layer")),
                _ => stack.headers.push(HeaderSpec::read(text, layer)?),
            }
        }
        if !stack.whole {
            stack.complete(link)?;
        }
        if stack.headers.len() > MOST_LAYERS {
            return Err(TextError::at(text, text, format!("too many layers; a packet may have at most {MOST_LAYERS}")));
        }
        Ok(stack)
    }

    /// Returns the headers, ready to build.
    pub(super) fn made(&self) -> Result<Vec<Box<dyn Header + '_>>, TextError> {
        let make = |layered| {
            HeaderSpec::make(layered).map_err(|unfit| TextError::at(self.text, layered.name, unfit.to_string()))
        };
        self.headers.iter().map(make).collect()
    }

    /// Returns the link type of the frame; `usual` unless the first header determines it.
    pub(super) fn link(&self, usual: Link) -> Link {
        let first = self.headers.first().and_then(|first| Link::starting_with(first.kind.protocol));
        first.unwrap_or(usual)
    }

    /// Converts a build error to an error at the layer that caused it.
    pub(super) fn unbuilt(&self, error: BuildError) -> TextError {
        match error {
            BuildError::Header { index, problem, .. } => {
                let layered = &self.headers[index];
                let written = self.headers[index + 1..].iter().find(|layered| !layered.name.is_empty());
                let what = match (problem, written) {
                    // The error names given headers only, not implied ones.
                    (Problem::CannotCarry(_), Some(next)) => cannot_carry(layered.kind, next.kind),
                    _ => problem.to_string(),
                };
                TextError::at(self.text, layered.name, format!("{}: {what}", layered.kind.name()))
            }
            other => TextError::at(self.text, self.text, other.to_string()),
        }
    }

    /// Adds implied headers: below the first layer, and where a layer cannot carry the next.
    fn complete(&mut self, link: Link) -> Result<(), TextError> {
        if self.headers.is_empty() {
            self.headers.push(HeaderSpec::usual("udp")?);
        }
        while let Some(below) = below(&self.headers[0], link) {
            self.headers.insert(0, HeaderSpec::usual(below)?);
        }
        let mut index = 1;
        while index < self.headers.len() && self.headers.len() <= MOST_LAYERS {
            let (outer, inner) = (&self.headers[index - 1], &self.headers[index]);
            let (carries, below) = (can_carry(outer, inner), inner.kind.below);
            if carries || below.is_empty() {
                index += 1;
            } else {
                // It may itself need a header before it.
                self.headers.insert(index, HeaderSpec::usual(below)?);
            }
        }
        Ok(())
    }
}

impl<'a> HeaderSpec<'a> {
    fn read(text: &'a str, layer: &Layer<'a>) -> Result<HeaderSpec<'a>, TextError> {
        let names = || Kind::all().map(Kind::name).chain(["payload", "raw", "file", "padding"]);
        let unknown = || TextError::at(text, layer.name, format!("no such layer; {}", choices(layer.name, names())));
        let kind = Kind::named(layer.name).ok_or_else(unknown)?;
        let mut layered = HeaderSpec { kind, name: layer.name, parts: Vec::new(), settings: Vec::new(), pattern: None };
        for argument in &layer.arguments {
            layered.argument(text, argument)?;
        }
        Ok(layered)
    }

    /// Creates an implied layer.
    fn usual(text: &'static str) -> Result<HeaderSpec<'a>, TextError> {
        let layers = syntax::layers(text)?;
        let layer = layers.first().ok_or_else(|| TextError::at(text, text, "no layer"))?;
        Ok(HeaderSpec { name: "", ..HeaderSpec::read(text, layer)? })
    }

    fn argument(&mut self, text: &'a str, argument: &Argument<'a>) -> Result<(), TextError> {
        let (kind, name) = (self.kind, argument.name);
        let Some(value) = argument.value else {
            return match (kind.part(name), kind.fields.iter().find(|field| field.name == name)) {
                (Some(part), _) if matches!(part.form, Form::Present | Form::Within) => {
                    self.parts.push((part.name, OptionValue::Present));
                    Ok(())
                }
                (_, Some(field)) if field.bits == 1 => {
                    self.settings.push(Setting { name, value: "1" });
                    Ok(())
                }
                (Some(_), _) | (_, Some(_)) => {
                    Err(TextError::at(text, name, format!("missing value; expected {name}=VALUE")))
                }
                _ => Err(self.unknown(text, name)),
            };
        };
        if name == "pattern" {
            self.pattern = Some(pattern(text, value)?);
            return Ok(());
        }
        let part = kind.part(name);
        match part.map(|part| part.form) {
            Some(Form::Bytes(_)) => {
                let bytes = bytes(text, value)?;
                self.parts.extend(part.map(|part| (part.name, OptionValue::Bytes(bytes))));
                return Ok(());
            }
            Some(Form::Number) => {
                let number = Format::Number.parse(value);
                let number = number.ok_or_else(|| {
                    TextError::at(text, value, "expected a single number, because it determines the form of the header")
                })?;
                self.parts.extend(part.map(|part| (part.name, OptionValue::Number(number))));
            }
            Some(Form::Present | Form::Within) => self.parts.extend(part.map(|part| (part.name, OptionValue::Present))),
            None => {}
        }
        let field = name.split('&').next().unwrap_or(name).trim();
        if name.starts_with('+') || kind.fields.iter().any(|of| of.name == field) {
            self.settings.push(Setting { name, value });
        } else if part.is_none() {
            return Err(self.unknown(text, name));
        }
        Ok(())
    }

    /// Returns the error for a field that the layer does not have.
    pub(super) fn unknown(&self, text: &str, name: &str) -> TextError {
        let mut names: Vec<&str> = self.kind.fields.iter().map(|field| field.name).collect();
        names.extend(self.kind.parts.iter().map(|part| part.name).filter(|name| *name != "control"));
        names.sort_unstable();
        names.dedup();
        TextError::at(text, name, format!("{} has no {name:?}; {}", self.kind.name(), choices(name, names)))
    }

    fn make(&self) -> Result<Box<dyn Header + '_>, EmitError> {
        let given: Vec<_> = self.parts.iter().map(|(name, part)| (*name, part.value())).collect();
        (self.kind.make)(PartValues(&given))
    }
}

fn setting<'a>(argument: &Argument<'a>) -> Option<Setting<'a>> {
    argument.value.map(|value| Setting { name: argument.name, value })
}

/// Returns the implied layer below the first one, unless the link begins with that.
fn below(first: &HeaderSpec<'_>, link: Link) -> Option<&'static str> {
    let begins = match link {
        Link::RawIp => first.kind.protocol.role() == Role::Network,
        Link::Ppp => first.kind.protocol == Protocol::Ppp,
        Link::Pppoe => first.kind.protocol == Protocol::Pppoe,
        _ => false,
    };
    (!begins && !first.kind.below.is_empty()).then_some(first.kind.below)
}

/// Layers that may be missing between two others, and are not implied.
const BETWEEN: [&str; 3] = ["ppp", "eth", "snap"];

/// Returns a layer that may be missing between two layers.
fn between(outer: &Kind, inner: &Kind) -> Option<&'static str> {
    let layer = |name: &'static str| HeaderSpec::usual(name).ok();
    let (outer, inner) = (layer(outer.name())?, layer(inner.name())?);
    BETWEEN
        .into_iter()
        .find(|name| layer(name).is_some_and(|layer| can_carry(&outer, &layer) && can_carry(&layer, &inner)))
}

fn cannot_carry(outer: &Kind, inner: &Kind) -> String {
    let missing = between(outer, inner);
    let is_form = outer.protocol == inner.protocol;
    let (outer, inner) = (outer.name(), inner.name());
    let advice = match missing {
        _ if is_form => format!(", which is another form of {outer}; remove {outer}"),
        Some(missing) => format!("; use {outer}/{missing}/{inner}"),
        None => String::new(),
    };
    format!("cannot carry {inner}{advice}")
}

fn can_carry(outer: &HeaderSpec<'_>, inner: &HeaderSpec<'_>) -> bool {
    let (Ok(outer), Ok(inner)) = (outer.make(), inner.make()) else { return true };
    !matches!(
        Frame::new(&[outer.as_ref(), inner.as_ref()], &[]).length(),
        Err(BuildError::Header { problem: Problem::CannotCarry(_), .. })
    )
}

fn pattern(text: &str, value: &str) -> Result<Pattern, TextError> {
    match value {
        "mesh" => return Ok(Pattern::Mesh),
        "lockstep" => return Ok(Pattern::Lockstep),
        "random" => return Ok(Pattern::Random),
        "zipf" => return Ok(Pattern::Zipf(1.0)),
        _ => {}
    }
    let exponent = super::value::call(value, "zipf").and_then(|inside| inside.trim().parse().ok());
    let exponent = exponent.filter(|exponent: &f64| exponent.is_finite() && *exponent >= 0.0);
    let wrong = || TextError::at(text, value, "invalid pattern; expected mesh, lockstep, random or zipf(1.1)");
    exponent.map(Pattern::Zipf).ok_or_else(wrong)
}

/// Returns the single argument of a layer; empty if there are none.
fn only<'a>(text: &str, layer: &Layer<'a>) -> Result<&'a str, TextError> {
    match layer.arguments[..] {
        [] => Ok(""),
        [Argument { name, value: None }] => Ok(name),
        [Argument { name: "hex", value: Some(value) }] => Ok(value),
        _ => Err(TextError::at(text, layer.name, format!("invalid bytes; expected {}(0a0b0c)", layer.name))),
    }
}

fn from_file(text: &str, layer: &Layer<'_>, files: Files<'_>) -> Result<Vec<u8>, TextError> {
    let [Argument { name, value: None }] = layer.arguments[..] else {
        return Err(TextError::at(
            text,
            layer.name,
            "invalid file; expected a name and frame number, such as file(capture.pcap#3)",
        ));
    };
    let unquoted = if name.starts_with('"') { syntax::unquote(text, name)? } else { name.as_bytes().to_vec() };
    let path = String::from_utf8_lossy(&unquoted);
    let (path, number) = path.rsplit_once('#').unwrap_or((&path, "1"));
    let number = number.parse().ok().filter(|number| *number > 0);
    let number = number
        .ok_or_else(|| TextError::at(text, name, "invalid frame number; expected 1 or more, such as capture.pcap#1"))?;
    files(path, number).map_err(|what| TextError::at(text, name, what))
}
