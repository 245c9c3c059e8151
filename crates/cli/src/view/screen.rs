//! A terminal as a whole: live views that are drawn anew, and keys as they are pressed.
//!
//! Drawing is ratatui's: it keeps what is on the screen and writes what has changed. Of its crates `ratatui-core` does: a view here is
//! lines of text. What it writes to a terminal, and how keys are read, is a few lines of our own (`tty`, `keys`): the crates for that
//! start threads, install signal handlers and open devices, which a confined run may not.
//!
//! A view never slows a run: it has a thread of its own, and a terminal that takes nothing holds up that one alone.
//!
//! The terminal is put back whatever happens: when the view ends, when the thread that has it panics, and before any other panic is
//! told. Ctrl-C stays a signal, which ends a run as it does everywhere.

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

/// How long a key is waited for before it is looked what else there is: so soon a view ends.
const LOOK: Duration = Duration::from_millis(50);
/// Lines and columns that are drawn at the most.
const MOST_SIDE: u16 = 1000;

/// What is shown.
pub trait View {
    /// Takes a key; false if the view is to end.
    fn key(&mut self, key: Key) -> bool;

    /// Takes up what is new; whether there was something.
    fn look(&mut self) -> bool;

    /// Its lines, for so many columns and lines.
    fn lines(&mut self, width: usize, height: usize) -> Vec<Line>;
}

/// A line: text, and what kind of line it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Names that strangers chose are made harmless when it is drawn.
    pub text: String,
    /// What it looks like.
    pub kind: Kind,
}

/// What a line looks like. Colours say nothing that words do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As the terminal has it.
    Plain,
    /// The first and the last one.
    Bar,
    /// Heads of a table.
    Head,
    /// What needs attention.
    Alarm,
    /// What matters less.
    Dim,
    /// What keys are about.
    Chosen,
}

impl Line {
    /// Of this kind.
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
    /// Takes the terminal over, if there is one to see the view and to press keys; `errors`: where standard error goes to.
    pub fn open(errors: bool) -> Option<Screen> {
        let (keyboard, out) = keyboard_and_screen(errors)?;
        tty::take_over(&keyboard, &out).ok()?;
        match Terminal::new(Tty::new(out)) {
            Ok(terminal) => Some(Screen { terminal, keys: Keys::new(keyboard) }),
            Err(_) => {
                tty::put_back();
                None
            }
        }
    }

    /// Shows a view until it ends by a key, `is_over`, or the terminal goes away.
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
        tty::put_back();
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

/// What a view looks like on a screen of this size, as text.
#[cfg(test)]
pub fn picture(view: &mut impl View, width: u16, height: u16) -> String {
    use ratatui_core::backend::TestBackend;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}
