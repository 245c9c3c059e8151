//! The only way from the verbs to standard output and standard error.
//!
//! What is printed has names in it that strangers chose: of files, ports, interfaces. A terminal would obey control
//! characters among them, so they are escaped here, in all that is printed. A line that names something goes through
//! [`shown`] as well, or the name could bring lines of its own.
//!
//! Standard output may be closed by who reads it (`| head -1`): what was printed is what they wanted, and nothing more is
//! printed. Where it fails otherwise (a full disk, `>&-`) the program says so and ends with [`Exit::Failed`]. Nobody need read
//! standard error, and no failure there ends anything.

use crate::exit::Exit;
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

/// Why standard output takes no more.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Whether standard output was closed, or open only for reading, when the program started. The runtime hides both: it opens
/// /dev/null in place of the first and ignores the errors of the second.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Notes whether standard output can be written to. For a call before the runtime starts.
pub extern "C" fn note_closed_output() {
    let is_writable = fcntl_getfl(stdout()).is_ok_and(|flags| (flags & OFlags::ACCMODE) != OFlags::RDONLY);
    CLOSED.store(!is_writable, Ordering::Relaxed);
}

/// An error if nothing that goes to standard output arrives anywhere.
pub fn check_output() -> io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) { Err(rustix::io::Errno::BADF.into()) } else { Ok(()) }
}

/// Lines that were drawn last on standard error, with nothing behind them.
static DRAWN: Mutex<usize> = Mutex::new(0);

/// Columns of the narrowest terminal that lines are folded for.
const NARROWEST: usize = 40;

/// Prints to standard output. False once that takes no more: nobody reads what follows.
pub fn show(text: impl Display) -> bool {
    print(folded(&escaped(&text.to_string(), &[]), columns(io::stdout())).as_bytes())
}

/// Prints text that names nothing and is for another program, like [`show`], with every byte of it.
pub fn show_as_is(text: &[u8]) -> bool {
    print(text)
}

/// The same; returns how many bytes were taken, fewer than there are where nothing can be printed any more.
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

/// Prints a JSON document over many lines to standard output, like [`show`].
pub fn show_document(document: &impl Serialize) -> serde_json::Result<bool> {
    Ok(print(json(serde_json::to_string_pretty(document)?).as_bytes()))
}

/// Prints a JSON document to standard error, where frames go to standard output.
fn tell_document(document: &impl Serialize) -> serde_json::Result<()> {
    put(json(serde_json::to_string_pretty(document)?).as_bytes());
    Ok(())
}

/// The same as one line.
fn tell_line(document: &impl Serialize) -> serde_json::Result<()> {
    put(json(serde_json::to_string(document)?).as_bytes());
    Ok(())
}

/// Prints to standard error.
pub fn tell(text: impl Display) {
    put(folded(&escaped(&text.to_string(), &[]), columns(io::stderr())).as_bytes());
}

/// Prints a line that names something to standard error, and folds it nowhere: a command that is to be pasted.
pub fn tell_whole(line: &str) {
    put(format!("{}\n", shown(line)).as_bytes());
}

/// Prints what came of a run: to standard output, unless that `is_taken` by frames or records.
pub fn result(text: impl Display, is_taken: bool) {
    if is_taken {
        tell(text);
    } else {
        show(text);
    }
}

/// Prints a JSON document of what came of a run over many lines, where [`result`] would.
pub fn result_document(document: &impl Serialize, is_taken: bool) -> serde_json::Result<()> {
    if is_taken { tell_document(document) } else { show_document(document).map(drop) }
}

/// The same as one line.
pub fn result_line(document: &impl Serialize, is_taken: bool) -> serde_json::Result<()> {
    if is_taken { tell_line(document) } else { show_line(document).map(drop) }
}

/// Prints what went wrong, in one line.
pub fn fail(what: impl Display) {
    tell(format_args!("linerate: {}\n", shown(&what.to_string())));
}

/// Draws `text` on standard error, over what was drawn there last, unless something was printed since. Lines too long for the
/// terminal are cut there, not wrapped: wrapped ones could not be counted.
pub fn draw(text: &str) {
    let mut drawn = drawn();
    let up = if *drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
    put_over(&mut drawn, text.lines().count(), format!("{up}\x1b[J\x1b[?7l{}\x1b[?7h", escaped(text, &[])).as_bytes());
}

/// A name, or a reason, as it may stand in a line.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n'])
}

/// The keyboard and the screen of a terminal where both are one that belongs to this program now: what it reads comes from there, and
/// its output goes there, or with `errors` what it says beside its output.
#[cfg(feature = "tui")]
pub fn keyboard_and_screen(errors: bool) -> Option<(std::os::fd::OwnedFd, std::fs::File)> {
    let is_one =
        io::stdin().is_terminal() && if errors { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    // In the background it would be stopped over it.
    let has_it = || rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp());
    if !is_one || !has_it() {
        return None;
    }
    let screen =
        if errors { io::stderr().as_fd().try_clone_to_owned() } else { io::stdout().as_fd().try_clone_to_owned() };
    Some((io::stdin().as_fd().try_clone_to_owned().ok()?, screen.ok()?.into()))
}

/// Whether live lines are wanted where the user said nothing: only a person reads them.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether standard output is a terminal, which is no place for binary data.
pub fn is_output_terminal() -> bool {
    io::stdout().is_terminal()
}

/// How many lines the terminal shows, where it says.
pub fn height() -> Option<usize> {
    let height = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_row));
    Some(height).filter(|height| *height > 0)
}

/// How many characters a line has where people see it; nothing where nobody does.
pub fn width() -> Option<usize> {
    let widths = [columns(io::stdout()), columns(io::stderr())];
    widths.into_iter().flatten().min()
}

/// Standard output for what is no text of ours: whole records, whose writer tells of its failures itself.
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

/// The same for a writer that is to leave failures to [`end`]: a broken pipe for all of them.
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

/// What clap has to say: help that was asked for, or what is wrong with the arguments.
pub fn explain(error: &clap::Error) -> Exit {
    let plain = error.render().to_string();
    let is_plain = escaped(&plain, &[]) == plain;
    match (error.use_stderr(), is_plain) {
        (false, _) => note(check_output().and_then(|()| error.print()).and_then(|()| io::stdout().flush())),
        (true, true) => drop(error.print()),
        (true, false) => tell(plain),
    }
    if error.use_stderr() { Exit::Usage } else { Exit::Done }
}

/// How the program ends: as the verb did, unless what it printed is not complete.
pub fn end(exit: Exit) -> Exit {
    match &*failure() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(format_args!("standard output: {error}: what was to be printed there is not complete"));
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
    // Narrower ones are no terminals of people.
    (width >= NARROWEST).then_some(width)
}

/// Text whose lines are no longer than a terminal has columns, as far as there are blanks: a terminal would end them in the middle
/// of words. What belongs to a line stands two columns further to the right.
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

/// Where a line may be ended best: behind what a comma or the like ends, unless that is in its first part.
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

/// Writes to standard error what ends in so many lines that may be drawn over.
fn put_over(drawn: &mut usize, lines: usize, bytes: &[u8]) {
    *drawn = lines;
    // A terminal that is gone is no reason to end a run.
    let _ = io::stderr().lock().write_all(bytes);
}

fn drawn() -> MutexGuard<'static, usize> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text without characters that a terminal would obey, but for the ends of lines, unless they are `unwanted` too.
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

/// A document and the end of its line. JSON has an escape of its own, which means the same to whoever reads it.
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
    fn text_keeps_its_lines_and_nothing_else_that_is_unseen() {
        assert_eq!(escaped("plain \u{e9}\n", &[]), "plain \u{e9}\n");
        assert_eq!(escaped("\x1b]0;x\x07\u{202e}\r\n", &[]), "\\u{1b}]0;x\\u{7}\\u{202e}\\r\n");
        assert_eq!(shown("a\nb\u{7f}"), "a\\nb\\u{7f}");
    }

    #[test]
    fn lines_end_between_words() {
        let text = "  one two three four\nfive\n";
        assert_eq!(folded(text, None), text);
        assert_eq!(folded(text, Some(20)), text);
        assert_eq!(folded(text, Some(12)), "  one two\n    three\n    four\nfive\n");
        assert_eq!(folded("two of three, 10.7 Gb/s\n", Some(20)), "two of three,\n  10.7 Gb/s\n", "behind a comma");
    }

    #[test]
    fn a_document_says_the_same_after_it_was_cleaned() {
        let name = "a\u{7f}\u{9b}\u{202e}\u{e0001}\n\u{1b}";
        let text = json(serde_json::to_string(&[name]).unwrap());
        assert!(!text.trim_end().contains(is_unseen), "{text}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }
}
