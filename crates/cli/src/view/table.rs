//! Text tables.
//!
//! Rows are not wrapped, and columns are not cut: columns that do not fit the terminal follow in another table below, which repeats
//! the key columns.

use super::terminal::{shown, width};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::fmt;
use std::ops::Range;

/// Padding of a column: two spaces before the first, one before others, one after each.
const PADDING: usize = 2;
/// Maximum part of the terminal for all key columns.
const KEYS: (usize, usize) = (2, 5);
/// Minimum length of a shortened key.
const SHORTEST: usize = 8;
/// Replaces the middle of a name that is too long.
const ELLIPSIS: char = '\u{2026}';

/// A table; line breaks in its cells are escaped.
pub struct Rows {
    /// Rows; the first one is the header.
    rows: Vec<Vec<String>>,
    /// First column of numbers.
    numbers: usize,
    /// Number of key columns.
    keys: usize,
    /// Left-aligned columns among the numbers.
    left: Vec<usize>,
}

/// Returns a table with these headers; columns from `numbers` on are right-aligned numbers. The first column, or the first two, are
/// the keys.
pub fn table(heads: &[&str], numbers: usize) -> Rows {
    let mut rows = Rows { rows: Vec::new(), numbers, keys: numbers.clamp(1, 2), left: Vec::new() };
    rows.add_row(heads.iter().copied());
    rows
}

impl Rows {
    /// Adds a row.
    pub fn add_row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| shown(&cell.into()).into_owned()).collect());
    }

    /// Left-aligns a column.
    pub fn set_left(&mut self, column: usize) {
        self.left.push(column);
    }

    /// Makes only the first column a key.
    pub fn with_single_key(mut self) -> Self {
        self.keys = 1;
        self
    }

    /// Returns the table fitted to this width.
    fn fitting(&self, width: Option<usize>) -> String {
        let Some(width) = width else { return self.part(&self.rows, 0..self.rows[0].len(), usize::MAX) };
        let most = self.most_of_keys(width * KEYS.0 / KEYS.1);
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| self.shortened(row, most)).collect();
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default() + PADDING)
            .collect();
        let keys: usize = 1 + widths[..self.keys].iter().sum::<usize>();
        let mut parts = Vec::new();
        let mut first = self.keys;
        while first < widths.len() {
            let mut room = width.saturating_sub(keys);
            let fit = widths[first..].iter().take_while(|wide| {
                let fits = **wide <= room;
                room = room.saturating_sub(**wide);
                fits
            });
            // A text wider than the terminal wraps within its column.
            let last = first + fit.count().max(1);
            parts.push(self.part(&rows, first..last, width));
            first = last;
        }
        if parts.is_empty() { self.part(&rows, 0..widths.len(), width) } else { parts.join("\n\n") }
    }

    /// Returns the key columns and some others.
    fn part(&self, rows: &[Vec<String>], columns: Range<usize>, width: usize) -> String {
        let columns: Vec<usize> = (0..self.keys.min(columns.start)).chain(columns).collect();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if width < usize::from(u16::MAX) {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
        }
        let mut rows = rows.iter().map(|row| columns.iter().map(|column| &row[*column]));
        if let Some(heads) = rows.next() {
            table.set_header(heads);
        }
        for row in rows {
            table.add_row(row);
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if place == 0 { 2 } else { 1 }, 1));
            if columns[place] >= self.numbers && !self.left.contains(&columns[place]) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }

    /// Returns the maximum length of a key so that all key columns fit this width.
    fn most_of_keys(&self, room: usize) -> usize {
        let longest = |key: usize| self.rows.iter().map(|row| row[key].chars().count()).max().unwrap_or_default();
        let longest: Vec<usize> = (0..self.keys).map(longest).collect();
        let taken = |most: usize| longest.iter().map(|wide| most.min(*wide) + PADDING).sum::<usize>();
        (SHORTEST..=room).rev().find(|most| taken(*most) <= room).unwrap_or(SHORTEST)
    }

    fn shortened(&self, row: &[String], most: usize) -> Vec<String> {
        row.iter()
            .enumerate()
            .map(|(column, cell)| if column < self.keys { short(cell, most) } else { cell.clone() })
            .collect()
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fitting(width()))
    }
}

/// Shortens a name, keeping its start and end.
fn short(name: &str, most: usize) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= most || most < 3 {
        return name.to_owned();
    }
    let begin = (most - 1) / 2;
    let end = characters.len() - (most - 1 - begin);
    characters[..begin].iter().chain([&ELLIPSIS]).chain(&characters[end..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let mut rows = table(&["stage", "of", "received", "delivered", "lost", "why"], 2);
        rows.set_left(5);
        let long = "pcap:/a/very/long/path/to/some/file/of/yesterday.pcapng.zst";
        rows.add_row(["receive", long, "1,234,567", "1,234,560", "7", "ring_full 7, upstream_lost 12"]);
        let plain = rows.fitting(None);
        assert!(plain.contains(long) && plain.lines().count() == 2, "{plain}");
        for width in [40, 60, 80, 200] {
            let text = rows.fitting(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for word in ["1,234,567", "1,234,560", "ring_full", "upstream_lost", "lost", "why", ".zst"] {
                assert!(text.contains(word), "{width}, {word}:\n{text}");
            }
        }
        assert_eq!(rows.fitting(Some(200)).lines().count(), 2);
        assert_eq!(short("abcdefgh", 5), "ab\u{2026}gh");
    }
}
