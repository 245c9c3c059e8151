//! Output to standard output and standard error; verbs print only through this module.
//!
//! Output contains untrusted names of files, ports and interfaces. Control characters are escaped here in all output, since a terminal
//! would interpret them. Names in a line also go through [`shown`], so that they cannot add lines.
//!
//! If the reader closes standard output (`| head -1`), output stops without an error. Any other failure (a full disk, `>&-`) is
//! reported, and the program ends with [`Exit::Failed`]. Failures of standard error are ignored.

use super::document::Document;
use crate::exit::{Exit, without_numbers};
use linerate_burst::text::is_unseen;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// First failure of standard output.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// True if standard output was closed, or open only for reading, at start. The runtime hides both: it opens /dev/null instead of
/// the former and ignores the errors of the latter.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Records whether standard output is writable. Called before the runtime starts.
pub extern "C" fn note_closed_output() {
    let is_writable = fcntl_getfl(stdout()).is_ok_and(|flags| (flags & OFlags::ACCMODE) != OFlags::RDONLY);
    CLOSED.store(!is_writable, Ordering::Relaxed);
}

/// Fails if standard output was not writable at start.
pub fn check_output() -> io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) { Err(rustix::io::Errno::BADF.into()) } else { Ok(()) }
}

/// Number of lines drawn last on standard error, if nothing was printed since.
static DRAWN: Mutex<usize> = Mutex::new(0);

/// Minimum width of a terminal for which lines are folded.
const NARROWEST: usize = 40;

/// Prints to standard output. Returns false after a failure.
pub fn show(text: impl Display) -> bool {
    print(folded(&escaped(&text.to_string(), &[]), columns(io::stdout())).as_bytes())
}

/// Prints bytes for another program unchanged, like [`show`]. They must not contain untrusted names.
pub fn show_as_is(text: &[u8]) -> bool {
    print(text)
}

/// Like [`show_as_is`]; returns the number of bytes written, fewer than all after a failure.
pub fn show_bytes(text: &[u8]) -> usize {
    if text.is_empty() || failure().is_some() {
        return 0;
    }
    let mut out = io::stdout().lock();
    let mut taken = 0;
    let mut write = || {
        check_output()?;
        while taken < text.len() {
            match out.write(&text[taken..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => taken += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        out.flush()
    };
    note(write());
    taken
}

/// Prints a JSON document as one line to standard output, like [`show`].
pub fn show_line(document: &impl Serialize) -> serde_json::Result<bool> {
    Ok(print(json(serde_json::to_string(document)?).as_bytes()))
}

/// Prints a result with data about the run as JSON over many lines to standard output, like [`show`].
pub fn show_document(result: &impl Serialize) -> serde_json::Result<bool> {
    Ok(print(json(serde_json::to_string_pretty(&Document::of(result))?).as_bytes()))
}

/// Prints to standard error.
pub fn print_stderr(text: impl Display) {
    put(folded(&escaped(&text.to_string(), &[]), columns(io::stderr())).as_bytes());
}

/// Prints a line to standard error without folding, such as a command for pasting.
pub fn print_unfolded(line: &str) {
    put(format!("{}\n", shown(line)).as_bytes());
}

/// Prints the result of a run to standard output, or to standard error if the former `is_taken` by packets or records.
pub fn result(text: impl Display, is_taken: bool) {
    if is_taken {
        print_stderr(text);
    } else {
        show(text);
    }
}

/// Prints a report that is also a file, and has the data about its run itself, like [`show_document`].
pub fn show_report(report: &impl Serialize) -> serde_json::Result<bool> {
    Ok(print(json(serde_json::to_string_pretty(report)?).as_bytes()))
}

/// Like [`show_document`], to the same output as [`result()`].
pub fn result_document(result: &impl Serialize, is_taken: bool) -> serde_json::Result<()> {
    let text = json(serde_json::to_string_pretty(&Document::of(result))?);
    if is_taken {
        put(text.as_bytes())
    } else {
        _ = print(text.as_bytes())
    }
    Ok(())
}

/// Like [`result_document`], as one line.
pub fn result_line(result: &impl Serialize, is_taken: bool) -> serde_json::Result<()> {
    row_line(&Document::of(result), is_taken)
}

/// Prints a part of a result as one line of JSON, to the same output as [`result()`].
pub fn row_line(row: &impl Serialize, is_taken: bool) -> serde_json::Result<()> {
    let text = json(serde_json::to_string(row)?);
    if is_taken {
        put(text.as_bytes())
    } else {
        _ = print(text.as_bytes())
    }
    Ok(())
}

/// Prints an error in one line, without the numbers of system errors: their texts are before them.
pub fn fail(what: impl Display) {
    print_stderr(format_args!("linerate: {}\n", shown(&without_numbers(&what.to_string()))));
}

/// Draws `text` on standard error, over the previous drawing unless other output followed it. Lines too long for the terminal are
/// cut, not wrapped, since wrapped ones could not be counted.
pub fn draw(text: &str) {
    let mut drawn = drawn();
    let up = if *drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
    put_over(&mut drawn, text.lines().count(), format!("{up}\x1b[J\x1b[?7l{}\x1b[?7h", escaped(text, &[])).as_bytes());
}

/// Escapes a name or reason for use within a line.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n'])
}

/// Returns keyboard and screen if standard input and output (with `errors`: standard error) are a terminal, and this process is in its
/// foreground group.
#[cfg(feature = "tui")]
pub fn keyboard_and_screen(errors: bool) -> Option<(std::os::fd::OwnedFd, std::fs::File)> {
    let is_one =
        io::stdin().is_terminal() && if errors { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    // A background process would be stopped.
    let has_it = || rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp());
    if !is_one || !has_it() {
        return None;
    }
    let screen =
        if errors { io::stderr().as_fd().try_clone_to_owned() } else { io::stdout().as_fd().try_clone_to_owned() };
    Some((io::stdin().as_fd().try_clone_to_owned().ok()?, screen.ok()?.into()))
}

/// Returns whether live lines are printed by default: only on a terminal.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Returns whether standard output is a terminal, which must not get binary data.
pub fn is_output_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns the number of lines of the terminal, if known.
pub fn height() -> Option<usize> {
    let height = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_row));
    Some(height).filter(|height| *height > 0)
}

/// Returns the width of the terminal, or `None` without one.
pub fn width() -> Option<usize> {
    let widths = [columns(io::stdout()), columns(io::stderr())];
    widths.into_iter().flatten().min()
}

/// Returns standard output for binary records, whose writer reports failures itself.
pub fn records() -> Box<dyn Write + Send> {
    struct Records;
    impl Write for Records {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            check_output().and_then(|()| io::stdout().write(bytes))
        }

        fn flush(&mut self) -> io::Result<()> {
            io::stdout().flush()
        }
    }
    Box::new(Records)
}

/// Returns standard output for a writer that leaves failures to [`end`]: it gets a broken pipe for all of them.
pub fn printed() -> Box<dyn Write + Send> {
    struct Printed;
    impl Write for Printed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if print(bytes) { Ok(bytes.len()) } else { Err(ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    Box::new(Printed)
}

/// Prints the help, to standard error if it was not asked for.
pub fn explain(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        drop(error.print());
        return Exit::Usage;
    }
    note(check_output().and_then(|()| error.print()).and_then(|()| io::stdout().flush()));
    Exit::Done
}

/// Returns the exit status of the program: that of the verb, or failed if standard output is incomplete.
pub fn end(exit: Exit) -> Exit {
    match &*failure() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(format_args!("standard output: {error}; the output is incomplete"));
            Exit::Failed
        }
        _ => exit,
    }
}

fn print(bytes: &[u8]) -> bool {
    show_bytes(bytes);
    failure().is_none()
}

fn note(result: io::Result<()>) {
    if let Err(error) = result {
        failure().get_or_insert(error);
    }
}

fn failure() -> MutexGuard<'static, Option<io::Error>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn columns(terminal: impl AsFd) -> Option<usize> {
    let width = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    // Narrower values are not real terminals.
    (width >= NARROWEST).then_some(width)
}

/// Folds lines at spaces to the width of the terminal, which would break them within words. Continuation lines are indented by two
/// more columns.
fn folded(text: &str, columns: Option<usize>) -> Cow<'_, str> {
    let is_long = |line: &str, columns| wide(line) > columns;
    let Some(columns) = columns.filter(|columns| text.lines().any(|line| is_long(line, *columns))) else {
        return Cow::Borrowed(text);
    };
    let mut folded = String::with_capacity(text.len() + 64);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        if !is_long(content, columns) {
            folded.push_str(line);
            continue;
        }
        let words = content.trim_start();
        let indent = content.len() - words.len();
        let (mut begun, mut margin) = (String::new(), indent);
        for word in words.split(' ') {
            if !begun.is_empty() && margin + wide(&begun) + 1 + wide(word) > columns {
                let rest = begun.split_off(end_of_part(&begun, columns / 2));
                folded.extend(std::iter::repeat_n(' ', margin).chain(begun.trim_end().chars()).chain(['\n']));
                (begun, margin) = (rest.trim_start().to_owned(), indent + 2);
            }
            if !begun.is_empty() {
                begun.push(' ');
            }
            begun.push_str(word);
        }
        folded.extend(std::iter::repeat_n(' ', margin).chain(begun.chars()));
        folded.push_str(&line[content.len()..]);
    }
    Cow::Owned(folded)
}

/// Returns the best place to end a line: after punctuation, unless that is in its first part.
fn end_of_part(line: &str, first: usize) -> usize {
    let place = line.rfind([',', ';', ':']).map(|place| place + 1);
    place.filter(|place| *place >= first && line[*place..].starts_with(' ')).unwrap_or(line.len())
}

fn wide(text: &str) -> usize {
    text.chars().count()
}

fn put(bytes: &[u8]) {
    put_over(&mut drawn(), 0, bytes);
}

/// Writes to standard error; the last `lines` lines may be drawn over.
fn put_over(drawn: &mut usize, lines: usize, bytes: &[u8]) {
    *drawn = lines;
    // The loss of the terminal must not end a run.
    let _ = io::stderr().lock().write_all(bytes);
}

fn drawn() -> MutexGuard<'static, usize> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Escapes control characters, except line feeds unless `unwanted`.
fn escaped<'a>(text: &'a str, unwanted: &[char]) -> Cow<'a, str> {
    let is_bad = |c: char| is_unseen(c) && (c != '\n' || unwanted.contains(&c));
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_bad(character) {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
    }
    Cow::Owned(clean)
}

/// Returns a document with a line feed, with control characters as JSON escapes.
fn json(mut text: String) -> String {
    let is_bad = |c: char| is_unseen(c) && c != '\n';
    if text.contains(is_bad) {
        let mut clean = String::with_capacity(text.len() + 16);
        for character in text.chars() {
            if is_bad(character) {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(clean, "\\u{unit:04x}");
                }
            } else {
                clean.push(character);
            }
        }
        text = clean;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("plain \u{e9}\n", &[]), "plain \u{e9}\n");
        assert_eq!(escaped("\x1b]0;x\x07\u{202e}\r\n", &[]), "\\u{1b}]0;x\\u{7}\\u{202e}\\r\n");
        assert_eq!(shown("a\nb\u{7f}"), "a\\nb\\u{7f}");
    }

    #[test]
    fn lines_are_folded_between_words() {
        let text = "  one two three four\nfive\n";
        assert_eq!(folded(text, None), text);
        assert_eq!(folded(text, Some(20)), text);
        assert_eq!(folded(text, Some(12)), "  one two\n    three\n    four\nfive\n");
        assert_eq!(folded("two of three, 10.7 Gb/s\n", Some(20)), "two of three,\n  10.7 Gb/s\n", "after a comma");
    }

    #[test]
    fn an_escaped_document_keeps_its_meaning() {
        let name = "a\u{7f}\u{9b}\u{202e}\u{e0001}\n\u{1b}";
        let text = json(serde_json::to_string(&[name]).unwrap());
        assert!(!text.trim_end().contains(is_unseen), "{text}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }
}
