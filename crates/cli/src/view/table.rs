//! Tables for people.
//!
//! No row is wrapped, and no column cut off: columns for which a terminal has no room stand in a further table below, behind the
//! first columns once more, by which rows are known.

use super::terminal::{shown, width};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::fmt;
use std::ops::Range;

/// What a column has around its text: two blanks in front of the first, one in front of others, one behind each.
const PADDING: usize = 2;
/// Names by which rows are known take this part of a terminal at the most, all together.
const KEYS: (usize, usize) = (2, 5);
/// They are not made shorter than this.
const SHORTEST: usize = 8;
/// Stands for the middle of a name that is too long.
const ELLIPSIS: char = '\u{2026}';

/// A table; names in it bring no lines of their own.
pub struct Rows {
    /// The first one is of the heads.
    rows: Vec<Vec<String>>,
    /// Columns from this one on are numbers.
    numbers: usize,
    /// By so many columns rows are known.
    keys: usize,
    /// Columns among the numbers that are text.
    left: Vec<usize>,
}

/// A table with these column heads; columns from `numbers` on are numbers, set to the right. Rows are known by the first one, or
/// the first two.
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

    /// Sets a column to the left.
    pub fn set_left(&mut self, column: usize) {
        self.left.push(column);
    }

    /// Rows are known by the first column alone.
    pub fn known_by_first(mut self) -> Self {
        self.keys = 1;
        self
    }

    /// The same as it stands in so many columns of a terminal.
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
            // A text that is wider than all there is wraps within its column.
            let last = first + fit.count().max(1);
            parts.push(self.part(&rows, first..last, width));
            first = last;
        }
        if parts.is_empty() { self.part(&rows, 0..widths.len(), width) } else { parts.join("\n\n") }
    }

    /// The columns by which rows are known, and some others.
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

    /// How long one of the names may be so that all together, the longest of each column, have this room.
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

/// A name of so many characters at the most: its begin and its end, which say most.
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
    fn columns_without_room_stand_below_and_nothing_is_lost() {
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
