//! Tables for people.

use super::terminal::shown;
use comfy_table::{CellAlignment, Table};
use std::fmt;

/// A table; names in it bring no lines of their own.
pub struct Rows(Table);

/// A table with these column heads; columns from `numbers` on are numbers, set to the right.
pub fn table(heads: &[&str], numbers: usize) -> Rows {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(heads.iter().map(|head| shown(head)));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 2 } else { 1 }, 1));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    Rows(table)
}

impl Rows {
    /// Adds a row.
    pub fn add_row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(cells.into_iter().map(|cell| shown(&cell.into()).into_owned()));
    }

    /// Sets a column to the left.
    pub fn set_left(&mut self, column: usize) {
        if let Some(column) = self.0.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
