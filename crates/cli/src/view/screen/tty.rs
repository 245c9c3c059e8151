//! Terminal output (ECMA-48 and private modes of xterm) and restoration of its state.

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::fs::File;
use std::io::{Result, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

/// Switches to the alternate screen, hides the cursor, and clears.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J";
/// Restores the main screen and the cursor.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// Default size if the terminal reports none.
const USUAL: Size = Size { width: 80, height: 24 };

/// The terminal in use, and its previous state.
static TAKEN: Mutex<Option<SavedTerminal>> = Mutex::new(None);

struct SavedTerminal {
    keyboard: OwnedFd,
    screen: File,
    before: Termios,
}

/// Turns off line mode and echo, and switches to the alternate screen.
pub(super) fn take_over(keyboard: &OwnedFd, screen: &File) -> Result<()> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
    });
    let before = tcgetattr(keyboard)?;
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    modes.input_modes.remove(InputModes::IXON);
    // A process that is stopped or dumps core could not restore the terminal.
    modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
    modes.special_codes[SpecialCodeIndex::VQUIT] = 0;
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    let taken = SavedTerminal { keyboard: keyboard.try_clone()?, screen: screen.try_clone()?, before };
    tcsetattr(keyboard, OptionalActions::Now, &modes)?;
    *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
    (&*screen).write_all(ENTER)
}

/// Restores the terminal, if it was taken over.
pub(super) fn restore() {
    if let Some(SavedTerminal { keyboard, mut screen, before }) =
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        // The terminal may be closed.
        let _ = screen.write_all(LEAVE);
        let _ = tcsetattr(keyboard, OptionalActions::Now, &before);
    }
}

/// Output backend of ratatui.
pub(super) struct Tty {
    screen: File,
    bytes: Vec<u8>,
}

impl Tty {
    pub(super) fn new(screen: File) -> Self {
        Tty { screen, bytes: Vec::new() }
    }

    fn put(&mut self, text: &str) -> Result<()> {
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Backend for Tty {
    type Error = std::io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> Result<()> {
        let (mut next, mut style) = (None, None);
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.put(&format!("\x1b[{};{}H", y + 1, x + 1))?;
            }
            next = Some((x + 1, y));
            let own = (cell.fg, cell.bg, cell.modifier);
            if style != Some(own) {
                style = Some(own);
                self.put(&rendition(own))?;
            }
            self.put(cell.symbol())?;
        }
        self.put("\x1b[0m")
    }

    fn hide_cursor(&mut self) -> Result<()> {
        self.put("\x1b[?25l")
    }

    fn show_cursor(&mut self) -> Result<()> {
        self.put("\x1b[?25h")
    }

    /// Does not query the terminal: the answer would be mixed with keys.
    fn get_cursor_position(&mut self) -> Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<()> {
        let Position { x, y } = position.into();
        self.put(&format!("\x1b[{};{}H", y + 1, x + 1))
    }

    fn clear(&mut self) -> Result<()> {
        self.put("\x1b[0m\x1b[2J")
    }

    fn clear_region(&mut self, _: ClearType) -> Result<()> {
        self.clear()
    }

    fn size(&self) -> Result<Size> {
        let size = tcgetwinsize(self.screen.as_fd())?;
        let size = Size { width: size.ws_col, height: size.ws_row };
        Ok(if size.width == 0 || size.height == 0 { USUAL } else { size })
    }

    fn window_size(&mut self) -> Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.screen.write_all(&bytes)
    }
}

/// Returns the select graphic rendition sequence (ECMA-48, 8.3.117) of a style.
fn rendition((front, back, modifier): (Color, Color, Modifier)) -> String {
    let mut text = "\x1b[0".to_owned();
    for (is_set, code) in [
        (modifier.contains(Modifier::BOLD), ";1"),
        (modifier.contains(Modifier::DIM), ";2"),
        (modifier.contains(Modifier::UNDERLINED), ";4"),
        (modifier.contains(Modifier::REVERSED), ";7"),
        (front == Color::Red, ";31"),
        (back == Color::Red, ";41"),
    ] {
        text += if is_set { code } else { "" };
    }
    text + "m"
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    #[test]
    fn a_panic_restores_the_terminal() {
        let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&leader).unwrap();
        unlockpt(&leader).unwrap();
        let name = ptsname(&leader, Vec::new()).unwrap();
        let terminal = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let modes = || format!("{:?}", tcgetattr(&terminal).unwrap());
        let before = modes();
        take_over(&terminal, &terminal.try_clone().unwrap().into()).unwrap();
        assert!(std::panic::catch_unwind(|| panic!("on purpose")).is_err());
        assert_eq!(modes(), before);
        let (mut written, expected) = (Vec::new(), [ENTER, LEAVE].concat());
        // A read may return fewer bytes.
        while written.len() < expected.len() {
            let mut some = [0; 256];
            let length = rustix::io::read(&leader, &mut some).unwrap();
            written.extend_from_slice(&some[..length]);
        }
        assert_eq!(written, expected);
    }
}
