//! Output of programs on a terminal, by script(1).

use super::tool;
use std::path::Path;

/// Runs a program on a terminal with this number of columns, and returns its output.
pub fn in_terminal(columns: u16, program: &Path, arguments: &[&str]) -> String {
    let quoted: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let line = format!("stty cols {columns} rows 40; exec {} {}", program.display(), quoted.join(" "));
    tool("script", &["-qec", &line, "/dev/null"]).replace('\r', "")
}

/// Removes escape sequences.
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\x1b') {
        plain += before;
        let end = escape.find(|c: char| c.is_ascii_alphabetic()).map_or(escape.len(), |end| end + 1);
        rest = &escape[end..];
    }
    plain + rest
}

/// Runs a program on a terminal with this number of columns.
///
/// # Panics
/// If a line is wider than the terminal, or a word is missing.
pub fn assert_fits(program: &Path, arguments: &[&str], columns: u16, words: &[&str]) {
    let text = plain(&in_terminal(columns, program, arguments));
    for line in text.lines() {
        let wide = line.chars().count();
        // Long words such as paths are wrapped by the terminal.
        let is_one = line.split_whitespace().any(|word| word.chars().count() + 8 > usize::from(columns));
        assert!(wide <= usize::from(columns) || is_one, "{wide} of {columns}: {line}\n{arguments:?}\n{text}");
    }
    for word in words {
        assert!(text.contains(word), "{word:?} at {columns}: {arguments:?}\n{text}");
    }
}
