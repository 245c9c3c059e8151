//! Tables of a live view, fitted to the width of the screen.

use ratatui_core::text::Span;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Header.
    pub head: &'static str,
    /// True for numbers, which are right-aligned.
    pub is_number: bool,
    /// Columns with the greatest value are dropped first on a narrow screen; 0 is never dropped.
    pub spare: u8,
}

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of a column of text.
const NARROWEST: usize = 6;

/// Returns a column of text.
pub const fn text(head: &'static str, spare: u8) -> Column {
    Column { head, is_number: false, spare }
}

/// Returns a column of numbers.
pub const fn number(head: &'static str, spare: u8) -> Column {
    Column { head, is_number: true, spare }
}

/// Returns header and rows for a screen of this width; text columns get the space that numbers leave.
pub fn table(columns: &[Column], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, |cell| wide(cell));
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0).max(wide(columns[column].head)))
        .collect();
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let total = |kept: &[usize], widths: &[usize]| kept.iter().map(|column| widths[*column] + GAP).sum::<usize>();
    while total(&kept, &widths) > width + GAP {
        let over = total(&kept, &widths) - width - GAP;
        // First shorten the widest text column, then drop optional columns.
        let texts = kept.iter().copied().filter(|column| !columns[*column].is_number);
        let least = |column: usize| {
            NARROWEST.max(wide(columns[column].head)).max(if columns[column].spare == 0 { 18 } else { 0 })
        };
        if let Some(widest) =
            texts.filter(|column| widths[*column] > least(*column)).max_by_key(|column| widths[*column])
        {
            widths[widest] = (widths[widest] - over.min(widths[widest])).max(least(widest));
            continue;
        }
        let spare = kept.iter().copied().filter(|column| columns[*column].spare > 0);
        let Some(most) = spare.max_by_key(|column| columns[*column].spare) else { break };
        kept.retain(|column| *column != most);
    }
    let heads: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
    std::iter::once(&heads).chain(rows).map(|row| line(columns, &kept, &widths, row)).collect()
}

fn line(columns: &[Column], kept: &[usize], widths: &[usize], row: &[String]) -> String {
    let mut line = String::new();
    for column in kept {
        let cell = cut(row.get(*column).map_or("", String::as_str), widths[*column]);
        let blank = " ".repeat(widths[*column].saturating_sub(wide(&cell)));
        if !line.is_empty() {
            line += "  ";
        }
        if columns[*column].is_number {
            line += &blank;
            line += &cell;
        } else {
            line += &cell;
            line += &blank;
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns the display width of a text.
pub fn wide(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to this display width, with an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for character in text.chars() {
        cut.push(character);
        if wide(&cut) + 1 > width {
            cut.pop();
            break;
        }
    }
    if width > 0 {
        cut.push('\u{2026}');
    }
    cut
}

/// Returns the last values as bars, in eighths of a line.
pub fn spark<'a>(values: impl DoubleEndedIterator<Item = &'a f64> + ExactSizeIterator, width: usize) -> String {
    const BARS: [char; 8] =
        ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
    let shown: Vec<f64> = values.rev().take(width).copied().collect();
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match (value / most * 8.0).ceil() {
        eighths if eighths >= 1.0 => BARS[(eighths as usize).min(8) - 1],
        _ => ' ',
    };
    shown.iter().rev().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [text("who", 0), number("bits/s", 0), number("packets/s", 1), number("age", 2)];

    #[test]
    fn a_table_shrinks_until_it_fits() {
        let row = ["a-very-long-name-of-a-server.example.org", "1.2 Mb/s", "3", "9 s"].map(str::to_owned).to_vec();
        let lines = |width| table(&COLUMNS, std::slice::from_ref(&row), width);
        assert_eq!(lines(80)[1], "a-very-long-name-of-a-server.example.org  1.2 Mb/s          3  9 s");
        assert!(lines(50)[1].contains("\u{2026}  1.2 Mb/s"), "{:?}", lines(50));
        assert!(!lines(34)[0].contains("age"), "{:?}", lines(34));
        for width in 28..100 {
            assert!(lines(width).iter().all(|line| wide(line) <= width), "{width}: {:?}", lines(width));
        }
        (0..28).for_each(|width| drop(lines(width)));
    }

    #[test]
    fn bars_show_the_last_values() {
        let values = [9.0, 0.0, 1.0, 4.0, 8.0];
        assert_eq!(spark(values.iter(), 4), " ▁▄█");
        assert_eq!(spark([0.0, 0.0].iter(), 9), "  ");
        assert_eq!(spark(std::iter::empty::<&f64>().collect::<Vec<_>>().into_iter(), 3), "");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!((cut("abc", 3), cut("abc", 0)), ("abc".to_owned(), String::new()));
    }
}
