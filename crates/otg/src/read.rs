//! Reading JSON so that all that is wrong is told, each with its path.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Display;

/// What is wrong with a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Each with the path of the field it is about: `flows[3].packet[1].ipv4.options: not supported`.
    pub list: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// As many are told; of a body of megabytes there could be millions.
const MOST_FAULTS: usize = 10_000;

impl Faults {
    /// One more.
    pub fn add(&mut self, path: &str, what: impl Display) {
        if self.list.len() >= MOST_FAULTS {
            self.more += 1;
            return;
        }
        let what = if path.is_empty() { what.to_string() } else { format!("{path}: {what}") };
        self.list.push(what);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All as lines, and how many are left out.
    pub fn lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more", self.more));
        }
        self.list
    }
}

/// A value, and where it is.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// As `flows[3].packet[1]`; empty for the whole.
    pub path: String,
    /// What is there.
    pub value: &'a Value,
}

/// An object whose fields are taken one by one: those that nobody takes are not supported.
#[derive(Debug)]
pub struct Object<'a> {
    /// Where it is.
    pub path: String,
    map: Option<&'a Map<String, Value>>,
    taken: BTreeSet<&'static str>,
}

impl<'a> Node<'a> {
    /// The whole document.
    pub fn root(value: &'a Value) -> Self {
        Node { path: String::new(), value }
    }

    /// As an object; an empty one where it is something else, which is told.
    pub fn object(&self, faults: &mut Faults) -> Object<'a> {
        let map = self.value.as_object();
        if map.is_none() {
            faults.add(&self.path, "an object belongs here");
        }
        Object { path: self.path.clone(), map, taken: BTreeSet::new() }
    }

    /// As a list; an empty one where it is something else, which is told.
    pub fn list(&self, faults: &mut Faults) -> Vec<Node<'a>> {
        let Some(list) = self.value.as_array() else {
            faults.add(&self.path, "a list belongs here");
            return Vec::new();
        };
        let node = |(index, value)| Node { path: format!("{}[{index}]", self.path), value };
        list.iter().enumerate().map(node).collect()
    }

    /// As text.
    pub fn text(&self, faults: &mut Faults) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            faults.add(&self.path, "text belongs here");
        }
        text
    }

    /// As a whole number: 64-bit ones travel as text.
    pub fn number(&self, faults: &mut Faults) -> Option<u64> {
        let number = match self.value {
            Value::String(text) => text.parse().ok(),
            value => value.as_u64().or_else(|| {
                let float = value.as_f64()?;
                (float >= 0.0 && float < 2f64.powi(53) && float.fract() == 0.0).then_some(float as u64)
            }),
        };
        if number.is_none() {
            faults.add(&self.path, "a whole number, 0 or more, belongs here");
        }
        number
    }

    /// As a number, 0 or more.
    pub fn float(&self, faults: &mut Faults) -> Option<f64> {
        let number = match self.value {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64(),
        };
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        if number.is_none() {
            faults.add(&self.path, "a number, 0 or more, belongs here");
        }
        number
    }

    /// As true or false.
    pub fn flag(&self, faults: &mut Faults) -> Option<bool> {
        let flag = self.value.as_bool();
        if flag.is_none() {
            faults.add(&self.path, "true or false belongs here");
        }
        flag
    }

    /// As a list of texts.
    pub fn texts(&self, faults: &mut Faults) -> Vec<&'a str> {
        let list = self.list(faults);
        list.iter().filter_map(|node| node.text(faults)).collect()
    }
}

impl<'a> Object<'a> {
    /// A field, if it is there and not null.
    pub fn take(&mut self, name: &'static str) -> Option<Node<'a>> {
        self.taken.insert(name);
        let value = self.map?.get(name).filter(|value| !value.is_null())?;
        Some(Node { path: self.at(name), value })
    }

    /// The same without taking it.
    pub fn peek(&self, name: &str) -> Option<&'a Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// A field that is an object.
    pub fn object(&mut self, name: &'static str, faults: &mut Faults) -> Option<Object<'a>> {
        Some(self.take(name)?.object(faults))
    }

    /// A field that is a list; empty where it is not there.
    pub fn list(&mut self, name: &'static str, faults: &mut Faults) -> Vec<Node<'a>> {
        self.take(name).map(|node| node.list(faults)).unwrap_or_default()
    }

    /// A field that is a list of texts; empty where it is not there.
    pub fn texts(&mut self, name: &'static str, faults: &mut Faults) -> Vec<&'a str> {
        self.take(name).map(|node| node.texts(faults)).unwrap_or_default()
    }

    /// A field that is text.
    pub fn text(&mut self, name: &'static str, faults: &mut Faults) -> Option<&'a str> {
        self.take(name)?.text(faults)
    }

    /// A field that has to be there, and text.
    pub fn needed(&mut self, name: &'static str, faults: &mut Faults) -> &'a str {
        match self.take(name) {
            Some(node) => node.text(faults).unwrap_or_default(),
            None => {
                faults.add(&self.at(name), "it is missing");
                ""
            }
        }
    }

    /// A field that is a whole number.
    pub fn number(&mut self, name: &'static str, faults: &mut Faults) -> Option<u64> {
        self.take(name)?.number(faults)
    }

    /// A field that is a number.
    pub fn float(&mut self, name: &'static str, faults: &mut Faults) -> Option<f64> {
        self.take(name)?.float(faults)
    }

    /// A field that is true or false.
    pub fn flag(&mut self, name: &'static str, faults: &mut Faults) -> Option<bool> {
        self.take(name)?.flag(faults)
    }

    /// Which of its fields is meant: `choice`, or else the only one of these that is there, or else the first.
    pub fn choice(&mut self, of: &[&'static str], faults: &mut Faults) -> &'static str {
        if let Some(node) = self.take("choice") {
            let Some(text) = node.text(faults) else { return "" };
            let known = of.iter().find(|name| **name == text);
            return known.copied().unwrap_or_else(|| {
                faults.add(&node.path, format_args!("{text:?} is not supported; there is {}", of.join(", ")));
                ""
            });
        }
        let there = |name: &&&'static str| self.map.is_some_and(|map| map.contains_key(**name));
        of.iter().find(there).or(of.first()).copied().unwrap_or_default()
    }

    /// Fields that were passed over on purpose.
    pub fn ignore(&mut self, names: &[&'static str]) {
        self.taken.extend(names);
    }

    /// The path of a field.
    pub fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Tells all fields that nobody took, but for those that say nothing.
    pub fn finish(self, faults: &mut Faults) {
        for (name, value) in self.map.into_iter().flatten() {
            let says_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            if !self.taken.contains(name.as_str()) && !says_nothing {
                faults.add(&self.at(name), "not supported");
            }
        }
    }
}
