//! The program in a pseudo terminal: a VT100 parser keeps its screen; tests press keys and change the size.

use linerate_tests::support::program::program;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum time until something is shown.
const PATIENCE: Duration = Duration::from_secs(60);

/// Written to the terminal after the end of the program: a title, which leaves the screen as it is.
const END: &str = "\x1b]0;end\x07";

/// A program in a pseudo terminal; it is killed on drop.
pub(super) struct Pty {
    leader: Arc<OwnedFd>,
    /// A handle on the other end, which keeps the settings that the program leaves.
    terminal: OwnedFd,
    child: Child,
    before: Termios,
    shown: Arc<Mutex<Shown>>,
}

struct Shown {
    parser: vt100::Parser,
    /// All output so far.
    bytes: Vec<u8>,
}

impl Pty {
    /// Starts the program in a new session, with a terminal of this size.
    pub(super) fn start(arguments: &[&str], columns: u16, rows: u16) -> Pty {
        let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&leader).unwrap();
        unlockpt(&leader).unwrap();
        let name = ptsname(&leader, Vec::new()).unwrap();
        let terminal = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&leader, size(columns, rows)).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let end = || terminal.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--"]).arg(program()).args(arguments);
        for name in ["SUDO_UID", "SUDO_GID", "DOAS_USER", "PKEXEC_UID"] {
            command.env_remove(name);
        }
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let shown = Shown { parser: vt100::Parser::new(rows, columns, 0), bytes: Vec::new() };
        let (leader, shown) = (Arc::new(leader), Arc::new(Mutex::new(shown)));
        let (from, to) = (Arc::clone(&leader), Arc::clone(&shown));
        // This thread ends with the test.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = rustix::io::read(&*from, &mut buffer) {
                let mut shown = to.lock().unwrap();
                shown.parser.process(&buffer[..bytes]);
                shown.bytes.extend_from_slice(&buffer[..bytes]);
            }
        });
        Pty { leader, terminal, child, before, shown }
    }

    /// The lines of the current screen.
    pub(super) fn screen(&self) -> String {
        let shown = self.shown.lock().unwrap();
        let screen = shown.parser.screen();
        let (_, columns) = screen.size();
        screen.rows(0, columns).map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    /// All output so far.
    pub(super) fn written(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap().bytes).into_owned()
    }

    /// Returns true if the alternate screen is shown.
    pub(super) fn is_taken(&self) -> bool {
        self.shown.lock().unwrap().parser.screen().alternate_screen()
    }

    /// Waits until the screen meets a condition.
    pub(super) fn wait(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(started.elapsed() < PATIENCE, "waited in vain until {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a text is shown.
    pub(super) fn wait_for(&self, text: &str) -> String {
        self.wait(&format!("{text:?} is shown"), |screen| screen.contains(text))
    }

    /// Presses keys.
    pub(super) fn press(&self, keys: &str) {
        rustix::io::write(&*self.leader, keys.as_bytes()).unwrap();
    }

    /// Changes the size.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        self.shown.lock().unwrap().parser.screen_mut().set_size(rows, columns);
        tcsetwinsize(&*self.leader, size(columns, rows)).unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Waits until the view is shown and the terminal is in raw mode.
    pub(super) fn wait_raw_mode(&self) {
        self.wait("the terminal is taken over", |_| {
            !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON) && self.is_taken()
        });
    }

    /// Waits for the program's end and a restored terminal; returns its status and its output on the previous screen.
    pub(super) fn end(mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "the program does not end:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        };
        // Its output is read by another thread: all of it is there once this is.
        rustix::io::write(&self.terminal, END.as_bytes()).unwrap();
        self.wait("all output is read", |_| self.written().ends_with(END));
        assert!(!self.is_taken(), "the screen is not restored");
        let after = tcgetattr(&self.terminal).unwrap();
        let before = &self.before;
        assert_eq!(after.local_modes, before.local_modes);
        assert_eq!(after.input_modes, before.input_modes);
        assert_eq!(format!("{:?}", after.special_codes), format!("{:?}", before.special_codes));
        assert!(!self.shown.lock().unwrap().parser.screen().hide_cursor(), "the cursor is still hidden");
        let written = self.written().replace(END, "");
        (status, written.rsplit("\x1b[?1049l").next().unwrap_or_default().to_owned())
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}
