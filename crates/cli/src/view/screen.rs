//! Full-screen terminal views, and keys.
//!
//! ratatui draws: it keeps the contents of the screen and writes only changes. `ratatui-core` is enough, since views are lines of
//! text. Terminal output and key input are implemented here (`tty`, `keys`): the crates for them start threads, install signal
//! handlers and open devices, which a confined run must not do.
//!
//! A view never slows a run: it has its own thread, and a blocked terminal blocks only that thread.
//!
//! The terminal is always restored: when the view ends, when its thread panics, and before any other panic is reported. Ctrl-C remains
//! a signal that ends the run.

pub mod keys;
pub mod numbers;
pub mod table;
mod tty;

use self::keys::{Input, Key, Keys};
use self::tty::Tty;
use super::terminal::{keyboard_and_screen, shown};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Terminal;
use std::time::Duration;

/// Maximum wait for a key before other events are checked; also the delay until a view ends.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of lines and of columns drawn.
const MOST_SIDE: u16 = 1000;

/// A view.
pub trait View {
    /// Handles a key; returns false to end the view.
    fn key(&mut self, key: Key) -> bool;

    /// Updates the view; returns whether anything changed.
    fn look(&mut self) -> bool;

    /// Returns its lines for this number of columns and lines.
    fn lines(&mut self, width: usize, height: usize) -> Vec<Line>;
}

/// A line of text with its style.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Text; control characters are escaped when it is drawn.
    pub text: String,
    /// Style.
    pub kind: Kind,
}

/// Style of a line. Colours carry no information that the text does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Default.
    Plain,
    /// First and last line.
    Bar,
    /// Table header.
    Head,
    /// Needs attention.
    Alarm,
    /// Less important.
    Dim,
    /// Selected row.
    Chosen,
}

impl Line {
    /// Creates a line.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Line { text: text.into(), kind }
    }
}

/// The screen, until it is dropped.
pub struct Screen {
    terminal: Terminal<Tty>,
    keys: Keys,
}

impl Screen {
    /// Takes over the terminal, if input and output are one; with `errors` the terminal of standard error.
    pub fn open(errors: bool) -> Option<Screen> {
        let (keyboard, out) = keyboard_and_screen(errors)?;
        tty::take_over(&keyboard, &out).ok()?;
        match Terminal::new(Tty::new(out)) {
            Ok(terminal) => Some(Screen { terminal, keys: Keys::new(keyboard) }),
            Err(_) => {
                tty::restore();
                None
            }
        }
    }

    /// Shows a view until a key, `is_over` or the loss of the terminal ends it.
    pub fn show(mut self, view: &mut impl View, is_over: impl Fn() -> bool) {
        let mut is_new = true;
        let mut size = None;
        while !is_over() {
            is_new |= view.look();
            let now = self.terminal.size().ok();
            if (is_new || now != size) && self.draw(view).is_err() {
                return;
            }
            (is_new, size) = (false, now);
            match self.keys.next(LOOK) {
                Input::Key(key) => {
                    is_new = true;
                    if !view.key(key) {
                        return;
                    }
                }
                Input::Nothing => {}
                Input::Gone => return,
            }
        }
    }

    fn draw(&mut self, view: &mut impl View) -> std::io::Result<()> {
        self.terminal.draw(|frame| draw(view, frame.area(), frame.buffer_mut())).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        tty::restore();
    }
}

/// Draws a view.
pub fn draw(view: &mut impl View, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(Rect::new(0, 0, MOST_SIDE, MOST_SIDE));
    let lines = view.lines(area.width.into(), area.height.into());
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        let style = style(line.kind);
        if matches!(line.kind, Kind::Bar | Kind::Head | Kind::Chosen) {
            buffer.set_style(Rect::new(area.x, y, area.width, 1), style);
        }
        buffer.set_stringn(area.x, y, shown(&line.text), area.width.into(), style);
    }
}

fn style(kind: Kind) -> Style {
    match kind {
        Kind::Plain => Style::new(),
        Kind::Bar | Kind::Chosen => Style::new().add_modifier(Modifier::REVERSED),
        Kind::Head => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        Kind::Alarm => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Kind::Dim => Style::new().add_modifier(Modifier::DIM),
    }
}

/// Returns a view on a screen of this size as text.
#[cfg(test)]
pub fn picture(view: &mut impl View, width: u16, height: u16) -> String {
    use ratatui_core::backend::TestBackend;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}
