//! JSON parser that reports all errors, each with its path.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Errors in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Messages with the path of their field: `flows[3].packet[1].ipv4.options: not supported`.
    pub list: Vec<String>,
    /// Number of further errors.
    pub more: usize,
}

/// Maximum number of messages; a body of megabytes could have millions of errors.
const MOST_FAULTS: usize = 10_000;

impl Faults {
    /// Adds an error.
    pub fn add(&mut self, path: &str, what: impl Display) {
        if self.list.len() >= MOST_FAULTS {
            self.more += 1;
            return;
        }
        let what = if path.is_empty() { what.to_string() } else { format!("{path}: {what}") };
        self.list.push(what);
    }

    /// Returns the number of errors.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all messages as lines, and the number of omitted ones.
    pub fn lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more", self.more));
        }
        self.list
    }
}

/// Value with its path.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Path, such as `flows[3].packet[1]`; empty for the document.
    pub path: String,
    /// Value.
    pub value: &'a Value,
}

/// Object whose fields are taken one by one: the others are not supported.
#[derive(Debug)]
pub struct Object<'a> {
    /// Path.
    pub path: String,
    map: Option<&'a Map<String, Value>>,
    taken: BTreeSet<&'static str>,
}

impl<'a> Node<'a> {
    /// Returns the root of a document.
    pub fn root(value: &'a Value) -> Self {
        Node { path: String::new(), value }
    }

    /// Returns the value as an object; an empty one after an error.
    pub fn object(&self, faults: &mut Faults) -> Object<'a> {
        let map = self.value.as_object();
        if map.is_none() {
            faults.add(&self.path, "expected an object");
        }
        Object { path: self.path.clone(), map, taken: BTreeSet::new() }
    }

    /// Returns the value as a list; an empty one after an error.
    pub fn list(&self, faults: &mut Faults) -> Vec<Node<'a>> {
        let Some(list) = self.value.as_array() else {
            faults.add(&self.path, "expected a list");
            return Vec::new();
        };
        let node = |(index, value)| Node { path: format!("{}[{index}]", self.path), value };
        list.iter().enumerate().map(node).collect()
    }

    /// Returns the value as text.
    pub fn text(&self, faults: &mut Faults) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            faults.add(&self.path, "expected text");
        }
        text
    }

    /// Returns the value as a whole number: 64-bit numbers may be text.
    pub fn number(&self, faults: &mut Faults) -> Option<u64> {
        let number = match self.value {
            Value::String(text) => text.parse().ok(),
            value => value.as_u64().or_else(|| {
                let float = value.as_f64()?;
                (float >= 0.0 && float < 2f64.powi(53) && float.fract() == 0.0).then_some(float as u64)
            }),
        };
        if number.is_none() {
            faults.add(&self.path, "expected a whole number, 0 or more");
        }
        number
    }

    /// Returns the value as a number, 0 or more.
    pub fn float(&self, faults: &mut Faults) -> Option<f64> {
        let number = match self.value {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64(),
        };
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            faults.add(&self.path, "expected a number, 0 or more");
        }
        number
    }

    /// Returns the value as true or false.
    pub fn flag(&self, faults: &mut Faults) -> Option<bool> {
        let flag = self.value.as_bool();
        if flag.is_none() {
            faults.add(&self.path, "expected true or false");
        }
        flag
    }

    /// Returns the value as a list of texts.
    pub fn texts(&self, faults: &mut Faults) -> Vec<&'a str> {
        let list = self.list(faults);
        list.iter().filter_map(|node| node.text(faults)).collect()
    }
}

impl<'a> Object<'a> {
    /// Takes a field, if it is present and not null.
    pub fn take(&mut self, name: &'static str) -> Option<Node<'a>> {
        self.taken.insert(name);
        let value = self.map?.get(name).filter(|value| !value.is_null())?;
        Some(Node { path: self.at(name), value })
    }

    /// Returns a field without taking it.
    pub fn peek(&self, name: &str) -> Option<&'a Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// Takes a field that is an object.
    pub fn object(&mut self, name: &'static str, faults: &mut Faults) -> Option<Object<'a>> {
        Some(self.take(name)?.object(faults))
    }

    /// Takes a field that is a list; empty if absent.
    pub fn list(&mut self, name: &'static str, faults: &mut Faults) -> Vec<Node<'a>> {
        self.take(name).map(|node| node.list(faults)).unwrap_or_default()
    }

    /// Takes a field that is a list of texts; empty if absent.
    pub fn texts(&mut self, name: &'static str, faults: &mut Faults) -> Vec<&'a str> {
        self.take(name).map(|node| node.texts(faults)).unwrap_or_default()
    }

    /// Takes a field that is text.
    pub fn text(&mut self, name: &'static str, faults: &mut Faults) -> Option<&'a str> {
        self.take(name)?.text(faults)
    }

    /// Takes a required field that is text.
    pub fn needed(&mut self, name: &'static str, faults: &mut Faults) -> &'a str {
        match self.take(name) {
            Some(node) => node.text(faults).unwrap_or_default(),
            None => {
                faults.add(&self.at(name), "missing");
                ""
            }
        }
    }

    /// Takes a field that is a whole number.
    pub fn number(&mut self, name: &'static str, faults: &mut Faults) -> Option<u64> {
        self.take(name)?.number(faults)
    }

    /// Takes a field that is a number.
    pub fn float(&mut self, name: &'static str, faults: &mut Faults) -> Option<f64> {
        self.take(name)?.float(faults)
    }

    /// Takes a field that is true or false.
    pub fn flag(&mut self, name: &'static str, faults: &mut Faults) -> Option<bool> {
        self.take(name)?.flag(faults)
    }

    /// Returns the name of the chosen field: that in `choice`, else the only one of these that is present, else the
    /// first.
    pub fn choice(&mut self, of: &[&'static str], faults: &mut Faults) -> &'static str {
        if let Some(node) = self.take("choice") {
            let Some(text) = node.text(faults) else { return "" };
            let known = of.iter().find(|name| **name == text);
            return known.copied().unwrap_or_else(|| {
                faults.add(&node.path, format_args!("{text:?} is not supported; expected one of {}", of.join(", ")));
                ""
            });
        }
        let there = |name: &&&'static str| self.map.is_some_and(|map| map.contains_key(**name));
        of.iter().find(there).or(of.first()).copied().unwrap_or_default()
    }

    /// Marks fields as taken that are ignored on purpose.
    pub fn ignore(&mut self, names: &[&'static str]) {
        self.taken.extend(names);
    }

    /// Returns the path of a field.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Reports all fields that were not taken, except empty ones.
    pub fn finish(self, faults: &mut Faults) {
        for (name, value) in self.map.into_iter().flatten() {
            let is_unset = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            if !self.taken.contains(name.as_str()) && !is_unset {
                faults.add(&self.at(name), "not supported");
            }
        }
    }
}
