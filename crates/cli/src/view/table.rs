//! Tables for people.

use comfy_table::{CellAlignment, Table};

/// A table with these column heads; columns from `numbers` on are numbers, set to the right.
pub fn table(heads: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(heads);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 2 } else { 1 }, 1));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
