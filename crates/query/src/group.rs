//! Groups of records by keys, in bounded memory.
//!
//! A group is its keys, a number each (for addresses and texts the index in a list of known ones), and its
//! accumulators. Above the maximum number of groups the smaller half of them is merged into `others`: large groups are
//! never among them.

use crate::columns::{Batch, Kind, Values, Word, own};
use crate::key::{Column, NONE, Value};
use crate::question::{Key, Question};
use crate::slot::Slot;
use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// All groups.
pub(crate) struct Groups {
    keys: Vec<Column>,
    slots: Vec<Slot>,
    /// The accumulator that is the size of a group.
    weight: usize,
    most: usize,
    /// True if records have two views, one from each end.
    is_twofold: bool,
    /// True if only the first one in the order of its values counts.
    is_paired: bool,
    /// Keys of each group, and a bit for each that is absent.
    codes: Vec<u64>,
    /// Accumulators of each group.
    kept: Vec<u64>,
    /// Hash table of groups, at most half full.
    table: Vec<u32>,
    seed: u64,
    /// For the last dictionary, if there is only one key: the group of each word.
    shortcut: Option<(Arc<Vec<Word>>, Vec<u32>)>,
    /// The group of each word of the key, if there is only one.
    by_place: Vec<u32>,
    /// Sums of merged groups, and their number.
    pub others: Vec<u64>,
    pub evicted_groups: u64,
}

impl Groups {
    /// Creates an empty table of at most `most` groups.
    pub(crate) fn new(question: &Question, most: usize) -> Self {
        let slots = question.slots();
        let time = (question.every > 0).then(|| {
            let of = crate::names::NamedColumns::One(own("first_time"));
            Column::new(Key { name: "time".to_owned(), of, prefix: None, is_other: false }, question.every)
        });
        let keys: Vec<Column> =
            time.into_iter().chain(question.keys.iter().map(|key| Column::new(key.clone(), 0))).collect();
        Groups {
            is_twofold: keys.iter().any(|column| column.key.is_of_either_end()),
            is_paired: keys.iter().any(|column| column.key.is_other),
            keys,
            weight: slots.iter().position(Slot::is_count).unwrap_or(0),
            others: slots.iter().map(Slot::none).collect(),
            slots,
            most: most.max(2),
            codes: Vec::new(),
            kept: Vec::new(),
            table: vec![NONE; 64],
            seed: RandomState::new().hash_one(0),
            shortcut: None,
            by_place: Vec::new(),
            evicted_groups: 0,
        }
    }

    fn stride(&self) -> usize {
        self.keys.len() + 1
    }

    pub(crate) fn len(&self) -> usize {
        self.codes.len() / self.stride()
    }

    /// Adds the chosen records; `values` are those of the accumulators.
    pub(crate) fn take(&mut self, batch: &Batch, chosen: Option<&[bool]>, values: &[Cow<'_, [u64]>]) {
        let is_chosen = |row: usize| chosen.is_none_or(|chosen| chosen[row]);
        if let [column] = &self.keys[..]
            && !self.is_twofold
            && let Some(Values::Words(places, words)) = batch.get(column.key.id(0))
        {
            let groups = self.groups_of_words(places, words, chosen);
            self.add(&groups, values, 0, |_| true);
            return self.bound();
        }
        let sides = if self.is_twofold { 2 } else { 1 };
        let views: Vec<Vec<u64>> = (0..sides).map(|side| self.view(batch, chosen, side)).collect();
        let stride = self.stride();
        let code = |side: usize, row: usize| &views[side][row * stride..(row + 1) * stride];
        for side in 0..sides {
            let mut groups = vec![NONE; batch.rows];
            for row in (0..batch.rows).filter(|row| is_chosen(*row)) {
                let is_in = match side {
                    _ if self.is_paired => self.is_after(code(0, row), code(1, row)) == (side == 1),
                    // A record with the same key at both ends counts once.
                    0 => true,
                    _ => code(0, row) != code(1, row),
                };
                if is_in {
                    groups[row] = self.group(code(side, row)) as u32;
                }
            }
            self.add(&groups, values, side, |_| true);
        }
        // Of a record between equal keys, both ends belong to the group.
        if self.is_twofold && self.slots.iter().any(Slot::is_of_end) {
            let is_equal = |row: &usize| is_chosen(*row) && code(0, *row) == code(1, *row);
            let mut groups = vec![NONE; batch.rows];
            for row in (0..batch.rows).filter(is_equal) {
                groups[row] = self.group(code(0, row)) as u32;
            }
            self.add(&groups, values, 1, Slot::is_of_end);
        }
        self.bound();
    }

    /// Returns whether the values of these keys are after those of others.
    fn is_after(&self, code: &[u64], other: &[u64]) -> bool {
        let absent = [code, other].map(|code| code[self.keys.len()]);
        let value = |side: usize, place: usize| {
            let code = [code, other][side][place];
            self.keys[place].value(code, absent[side] & 1 << place != 0)
        };
        let places = (0..self.keys.len()).filter(|place| code[*place] != other[*place] || absent[0] != absent[1]);
        places
            .map(|place| value(0, place).cmp(&value(1, place)))
            .find(|order| order.is_ne())
            .is_some_and(Ordering::is_gt)
    }

    /// Returns the keys of each record from one end, concatenated.
    fn view(&mut self, batch: &Batch, chosen: Option<&[bool]>, side: usize) -> Vec<u64> {
        let mut absent = vec![0; batch.rows];
        let columns: Vec<Vec<u64>> = self
            .keys
            .iter_mut()
            .enumerate()
            .map(|(place, column)| column.codes(batch, side, chosen, 1 << place, &mut absent))
            .collect();
        let stride = columns.len() + 1;
        let mut view = vec![0; batch.rows * stride];
        for (place, column) in columns.iter().chain([&absent]).enumerate() {
            for (row, code) in column.iter().enumerate() {
                let is_absent = place < stride - 1 && absent[row] & 1 << place != 0;
                view[row * stride + place] = if is_absent { 0 } else { *code };
            }
        }
        view
    }

    /// Returns the group of each record by one key of words, which is cached per word of the dictionary.
    fn groups_of_words(&mut self, places: &[u32], words: &Arc<Vec<Word>>, chosen: Option<&[bool]>) -> Vec<u32> {
        let mut known = match self.shortcut.take() {
            Some((of, known)) if Arc::ptr_eq(&of, words) => known,
            _ => vec![NONE; words.len() + 1],
        };
        let mut groups = vec![NONE; places.len()];
        for (row, place) in places.iter().enumerate().filter(|(row, _)| chosen.is_none_or(|chosen| chosen[*row])) {
            let place = (*place as usize).min(words.len());
            if known[place] == NONE {
                known[place] = match words.get(place) {
                    Some(word) => self.group_of_word(word),
                    None => self.group(&[0, 1]) as u32,
                };
            }
            groups[row] = known[place];
        }
        self.shortcut = Some((Arc::clone(words), known));
        groups
    }

    /// Returns the group of a word that is the only key.
    fn group_of_word(&mut self, word: &Word) -> u32 {
        let place = self.keys[0].place(word);
        let at = place as usize;
        if self.by_place.len() <= at {
            self.by_place.resize(at + 1, NONE);
        }
        if self.by_place[at] == NONE {
            self.by_place[at] = self.group(&[place.into(), 0]) as u32;
        }
        self.by_place[at]
    }

    /// Merges groups if there are too many, between two batches.
    fn bound(&mut self) {
        if self.len() >= self.most {
            self.evicted_groups();
        }
    }

    /// Adds the values of records to their groups of one end, one accumulator after another.
    fn add(&mut self, groups: &[u32], values: &[Cow<'_, [u64]>], side: usize, is_wanted: impl Fn(&Slot) -> bool) {
        let width = self.slots.len();
        for (place, slot) in self.slots.iter().enumerate().filter(|(_, slot)| is_wanted(slot)) {
            let other = slot.other_end(&self.slots).filter(|_| side == 1);
            let (kept, values) = (&mut self.kept[..], &values[other.unwrap_or(place)]);
            match slot {
                Slot::Count | Slot::Sum(_) | Slot::OfEnd(_) => {
                    add_slot(kept, width, place, groups, values, u64::saturating_add)
                }
                Slot::First => add_slot(kept, width, place, groups, values, Ord::min),
                Slot::Last => add_slot(kept, width, place, groups, values, Ord::max),
            }
        }
    }

    /// Returns the group with these keys, created if missing.
    fn group(&mut self, code: &[u64]) -> usize {
        let stride = self.stride();
        let mask = self.table.len() - 1;
        let mut at = self.hash(code) as usize & mask;
        loop {
            match self.table[at] {
                NONE => break,
                group if self.codes[group as usize * stride..][..stride] == *code => return group as usize,
                _ => at = (at + 1) & mask,
            }
        }
        let group = self.len();
        self.table[at] = group as u32;
        self.codes.extend_from_slice(code);
        self.kept.extend(self.slots.iter().map(Slot::none));
        if 2 * (group + 1) > self.table.len() {
            self.index(2 * self.table.len());
        }
        group
    }

    fn hash(&self, code: &[u64]) -> u64 {
        let mix = |hash: u64, word: &u64| {
            let product = u128::from(hash ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
            (product >> 64) as u64 ^ product as u64
        };
        let hash = code.iter().fold(self.seed, mix);
        hash ^ hash >> 32
    }

    /// Rebuilds the hash table.
    fn index(&mut self, size: usize) {
        let stride = self.stride();
        let mut table = vec![NONE; size];
        for group in 0..self.len() {
            let mut at = self.hash(&self.codes[group * stride..][..stride]) as usize & (size - 1);
            while table[at] != NONE {
                at = (at + 1) & (size - 1);
            }
            table[at] = group as u32;
        }
        self.table = table;
    }

    /// Merges the smaller half of the groups into `others`.
    fn evicted_groups(&mut self) {
        let (stride, width, count) = (self.stride(), self.slots.len(), self.len());
        let mut order: Vec<(Reverse<u64>, u32)> =
            (0..count).map(|group| (Reverse(self.kept[group * width + self.weight]), group as u32)).collect();
        let stay = (self.most / 2).clamp(1, count);
        if stay < count {
            order.select_nth_unstable(stay);
        }
        for (_, group) in &order[stay..] {
            let kept = &self.kept[*group as usize * width..][..width];
            self.others
                .iter_mut()
                .zip(kept)
                .zip(&self.slots)
                .for_each(|((sum, one), slot)| *sum = slot.join(*sum, *one));
        }
        self.evicted_groups += (count - stay) as u64;
        let (codes, kept) = (std::mem::take(&mut self.codes), std::mem::take(&mut self.kept));
        let words: Vec<Vec<Word>> = self
            .keys
            .iter_mut()
            .map(|column| {
                column.places.clear();
                column.known = [None, None];
                std::mem::take(&mut column.words)
            })
            .collect();
        self.table = vec![NONE; 64];
        self.shortcut = None;
        self.by_place.clear();
        order.truncate(stay);
        order.sort_unstable_by_key(|(_, group)| *group);
        for (_, group) in order {
            let code = &codes[group as usize * stride..][..stride];
            let kept = &kept[group as usize * width..][..width];
            self.put(code, kept, &words);
        }
    }

    /// Adds a group whose words are in these lists.
    fn put(&mut self, code: &[u64], kept: &[u64], words: &[Vec<Word>]) {
        let (absent, mut code) = (code[self.keys.len()], code.to_vec());
        for (place, column) in self.keys.iter_mut().enumerate() {
            let is_word = matches!(column.key.kind(), Kind::Address | Kind::Text);
            if is_word && absent & 1 << place == 0 {
                code[place] = column.place(&words[place][code[place] as usize]).into();
            }
        }
        let group = self.group(&code);
        let width = self.slots.len();
        let sums = &mut self.kept[group * width..][..width];
        sums.iter_mut().zip(kept).zip(&self.slots).for_each(|((sum, one), slot)| *sum = slot.join(*sum, *one));
    }

    /// Adds the groups of another table for the same question.
    pub(crate) fn join(&mut self, other: Groups) {
        let (stride, width) = (self.stride(), self.slots.len());
        let words: Vec<Vec<Word>> = other.keys.into_iter().map(|column| column.words).collect();
        for (code, kept) in other.codes.chunks_exact(stride).zip(other.kept.chunks_exact(width)) {
            self.put(code, kept, &words);
            self.bound();
        }
        self.evicted_groups += other.evicted_groups;
        for ((sum, one), slot) in self.others.iter_mut().zip(&other.others).zip(&self.slots) {
            *sum = slot.join(*sum, *one);
        }
    }

    /// Returns the sum of an accumulator over all groups.
    pub(crate) fn sum(&self, place: usize) -> u64 {
        let kept = self.kept.iter().skip(place).step_by(self.slots.len());
        kept.fold(self.others[place], |sum, one| sum.saturating_add(*one))
    }

    /// Returns keys and accumulators of each group.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Vec<Value>, &[u64])> {
        let (stride, width) = (self.stride(), self.slots.len());
        self.codes.chunks_exact(stride).zip(self.kept.chunks_exact(width)).map(move |(code, kept)| {
            let absent = code[stride - 1];
            let value = |(place, column): (usize, &Column)| column.value(code[place], absent & 1 << place != 0);
            (self.keys.iter().enumerate().map(value).collect(), kept)
        })
    }
}

/// Adds one accumulator of each group, for records that have one.
fn add_slot(
    kept: &mut [u64],
    width: usize,
    place: usize,
    groups: &[u32],
    values: &[u64],
    join: impl Fn(u64, u64) -> u64,
) {
    for (group, value) in groups.iter().zip(values).filter(|(group, _)| **group != NONE) {
        let kept = &mut kept[*group as usize * width + place];
        *kept = join(*kept, *value);
    }
}
