//! Tables of a stream file: their keys, each with its position.

use super::keys::{Key, Type};
use crate::text_error::{TextError, choices};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) struct Table<'a> {
    text: &'a str,
    /// Name in errors.
    pub name: String,
    /// Position in the file.
    pub at: Range<usize>,
    values: Vec<(&'static Key, &'a Spanned<DeValue<'a>>)>,
}

#[derive(Clone, Debug)]
pub(super) struct SourceValue<T> {
    pub value: T,
    /// Position in the file.
    pub at: Range<usize>,
}

/// Error in a file, with its key.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// Table and key.
    pub key: String,
    /// Problem and position in the file.
    pub wrong: TextError,
}

impl<'a> Table<'a> {
    /// Checks that there are only these keys, each with a value of its type.
    pub(super) fn of(
        text: &'a str,
        name: &str,
        at: Range<usize>,
        table: &'a DeTable<'a>,
        keys: &'static [Key],
    ) -> Result<Self, Fault> {
        let mut values = Vec::new();
        for (found, value) in table {
            let called: &str = found.get_ref();
            let fault = |key: &str, at: Range<usize>, what: String| Fault {
                key: key.to_owned(),
                wrong: TextError::new(at, what),
            };
            let Some(key) = keys.iter().find(|key| key.name == called) else {
                let what = format!("no such key; {}", choices(called, keys.iter().map(|key| key.name)));
                return Err(fault(&join(name, called), found.span(), what));
            };
            if !key.types.iter().any(|of| is(*of, value.get_ref())) {
                return Err(fault(&join(name, called), value.span(), format!("expected {}", key.legal)));
            }
            values.push((key, value));
        }
        Ok(Table { text, name: name.to_owned(), at, values })
    }

    /// Returns the text of a key.
    pub(super) fn text(&self, name: &str) -> Option<SourceValue<&'a str>> {
        let value = self.value(name)?;
        match value.get_ref() {
            DeValue::String(text) => Some(SourceValue { value: text, at: self.inside(text, value.span()) }),
            // A size may be a plain number.
            DeValue::Integer(number) => Some(SourceValue { value: number.as_str(), at: value.span() }),
            _ => None,
        }
    }

    /// Returns the number of a key.
    pub(super) fn number(&self, name: &str) -> Result<Option<SourceValue<u64>>, Fault> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let DeValue::Integer(number) = value.get_ref() else { return Ok(None) };
        let read = u64::from_str_radix(number.as_str(), number.radix());
        let read =
            read.map_err(|_| self.fault(name, value.span(), "out of range; expected 0 to 2^64 - 1".to_owned()))?;
        Ok(Some(SourceValue { value: read, at: value.span() }))
    }

    /// Returns the position of a key's value, if present.
    pub(super) fn given(&self, name: &str) -> Option<Range<usize>> {
        self.value(name).map(Spanned::span)
    }

    /// Returns whether a key is true.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| matches!(value.get_ref(), DeValue::Boolean(true)))
    }

    /// Returns the table of a key.
    pub(super) fn table(&self, name: &str, keys: &'static [Key]) -> Result<Option<Table<'a>>, Fault> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let DeValue::Table(table) = value.get_ref() else { return Ok(None) };
        Table::of(self.text, &join(&self.name, name), value.span(), table, keys).map(Some)
    }

    /// Returns the tables of a key.
    pub(super) fn tables(&self, name: &str, keys: &'static [Key]) -> Result<Vec<Table<'a>>, Fault> {
        let Some(DeValue::Array(array)) = self.value(name).map(Spanned::get_ref) else { return Ok(Vec::new()) };
        let table = |(index, value): (usize, &'a Spanned<DeValue<'a>>)| match value.get_ref() {
            DeValue::Table(table) => Table::of(self.text, &format!("{name} {}", index + 1), value.span(), table, keys),
            _ => Err(self.fault(name, value.span(), "expected [[stream]]".to_owned())),
        };
        array.iter().enumerate().map(table).collect()
    }

    /// Creates an error about the value of a key.
    pub(super) fn fault(&self, name: &str, at: Range<usize>, what: String) -> Fault {
        Fault { key: join(&self.name, name), wrong: TextError::new(at, what) }
    }

    /// Creates an error about a part of a key's text.
    pub(super) fn within(&self, name: &str, value: &SourceValue<&str>, wrong: TextError) -> Fault {
        let wrong = wrong.within(value.value);
        let is_as_written = value.at.len() == value.value.len();
        let start = value.at.start + if is_as_written { wrong.at.start } else { 0 };
        let end = if is_as_written { value.at.start + wrong.at.end } else { value.at.end };
        self.fault(name, start..end, wrong.what)
    }

    fn value(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.values.iter().find(|(key, _)| key.name == name).map(|(_, value)| *value)
    }

    /// Returns the position of a text between its quotation marks if it has no escapes; else including them.
    fn inside(&self, value: &str, span: Range<usize>) -> Range<usize> {
        let found = self.text.get(span.clone()).and_then(|written| written.find(value));
        found.map_or(span.clone(), |at| span.start + at..span.start + at + value.len())
    }
}

fn is(of: Type, value: &DeValue<'_>) -> bool {
    matches!(
        (of, value),
        (Type::Text, DeValue::String(_))
            | (Type::Number, DeValue::Integer(_))
            | (Type::Flag, DeValue::Boolean(_))
            | (Type::Burst, DeValue::Table(_))
            | (Type::Streams, DeValue::Array(_))
    )
}

fn join(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}, {key}") }
}
