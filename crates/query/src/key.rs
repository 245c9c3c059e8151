//! Keys of groups: values, and columns of them as numbers.

use crate::columns::{Batch, Kind, Values, Word};
use crate::networks::network;
use crate::question::Key;
use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A key of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// The value is absent.
    None,
    /// A boolean.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A time, in ns since 1970.
    Time(u64),
    /// An address.
    Address(IpAddr),
    /// A text.
    Text(Arc<str>),
}

/// Texts are distinguished by at most this many bytes.
const LONGEST_TEXT: usize = 512;
/// No group, or unknown.
pub(crate) const NONE: u32 = u32::MAX;

/// A dictionary, and the index of each of its words.
type WordIndex = (Arc<Vec<Word>>, Vec<u32>);

/// A key, and its known words.
pub(crate) struct Column {
    pub key: Key,
    /// Length of a time step, if it is time.
    step: u64,
    pub words: Vec<Word>,
    pub places: HashMap<Word, u32, RandomState>,
    /// For the last dictionary of each direction: the index in `words` of each word.
    pub known: [Option<WordIndex>; 2],
}

impl Column {
    pub(crate) fn new(key: Key, step: u64) -> Self {
        Column { key, step, words: Vec::new(), places: HashMap::default(), known: [None, None] }
    }

    pub(crate) fn place(&mut self, word: &Word) -> u32 {
        let word = match (word, self.key.prefix) {
            (Word::Address(address), Some([narrow, wide])) => {
                let bits = if address.is_ipv6() { wide } else { narrow };
                Word::Address(network(*address, bits))
            }
            (Word::Text(text), _) if text.len() > LONGEST_TEXT => {
                let end = (0..=LONGEST_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                Word::Text(text[..end].into())
            }
            (word, _) => word.clone(),
        };
        *self.places.entry(word).or_insert_with_key(|word| {
            self.words.push(word.clone());
            self.words.len() as u32 - 1
        })
    }

    /// Returns the number of each record; absent values are marked by `bit`.
    pub(crate) fn codes(
        &mut self,
        batch: &Batch,
        side: usize,
        chosen: Option<&[bool]>,
        bit: u64,
        absent: &mut [u64],
    ) -> Vec<u64> {
        let is_chosen = |row: usize| chosen.is_none_or(|chosen| chosen[row]);
        match batch.get(self.key.id(side)) {
            Some(Values::Numbers(numbers, are_absent)) => {
                are_absent.iter().zip(absent).filter(|(is, _)| **is).for_each(|(_, mark)| *mark |= bit);
                match self.step {
                    0 => numbers.clone(),
                    step => numbers.iter().map(|time| time / step * step).collect(),
                }
            }
            Some(Values::Words(places, words)) => {
                let mut known = match self.known[side].take() {
                    Some((of, known)) if Arc::ptr_eq(&of, words) => known,
                    _ => vec![NONE; words.len()],
                };
                let mut codes = vec![0; batch.rows];
                for row in (0..batch.rows).filter(|row| is_chosen(*row)) {
                    let place = places[row] as usize;
                    let Some(slot) = known.get_mut(place) else {
                        absent[row] |= bit;
                        continue;
                    };
                    if *slot == NONE {
                        *slot = self.place(&words[place]);
                    }
                    codes[row] = (*slot).into();
                }
                self.known[side] = Some((Arc::clone(words), known));
                codes
            }
            _ => {
                absent.iter_mut().for_each(|mark| *mark |= bit);
                vec![0; batch.rows]
            }
        }
    }

    pub(crate) fn value(&self, code: u64, is_absent: bool) -> Value {
        match (is_absent, self.key.kind()) {
            (true, _) => Value::None,
            (_, Kind::Address | Kind::Text) => match &self.words[code as usize] {
                Word::Address(address) => Value::Address(*address),
                Word::Text(text) => Value::Text(Arc::clone(text)),
            },
            (_, Kind::Time) => Value::Time(code),
            (_, Kind::Flag) => Value::Flag(code != 0),
            _ => Value::Number(code),
        }
    }
}
