//! A command of the shell that resets the device under test, once per trial.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A shell that is started while the program has all its rights, and runs its command for each reset.
pub struct Helper(Mutex<Waiting>);

struct Waiting {
    ask: ChildStdin,
    /// How each run ended, a line each; reading does not wait.
    told: ChildStdout,
    /// What it said that was not taken yet.
    said: String,
    is_busy: bool,
}

/// Runs its first argument for each line that comes, and says its status.
const LOOP: &str = r#"while read -r go; do sh -c "$1" </dev/null >/dev/null; echo "$?"; done"#;

impl Helper {
    /// Starts the shell, which waits. It ends with this process.
    ///
    /// # Errors
    /// If there can be no shell.
    pub fn start(command: &str) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", LOOP, "sh", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn()?;
        let (Some(ask), Some(told)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err(io::Error::other("a shell without pipes"));
        };
        rustix::io::ioctl_fionbio(told.as_fd(), true)?;
        Ok(Helper(Mutex::new(Waiting { ask, told, said: String::new(), is_busy: false })))
    }

    /// Starts a reset.
    ///
    /// # Errors
    /// The previous reset goes on, or there is no shell any more.
    pub fn begin(&self) -> io::Result<()> {
        self.ended();
        let mut waiting = self.waiting();
        if waiting.is_busy {
            return Err(io::Error::other("the one before has not ended yet"));
        }
        waiting.ask.write_all(b"go\n")?;
        waiting.is_busy = true;
        Ok(())
    }

    /// Returns how the reset ended, once it has.
    pub fn ended(&self) -> Option<String> {
        let mut waiting = self.waiting();
        let mut bytes = [0; 64];
        // Nothing to be read is an error too, and means that it goes on.
        if let Ok(length) = waiting.told.read(&mut bytes) {
            waiting.said += &String::from_utf8_lossy(&bytes[..length]);
        }
        let status = waiting.said.strip_suffix('\n')?.to_owned();
        (waiting.is_busy, waiting.said) = (false, String::new());
        Some(format!("exit status: {status}"))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_shell_that_waits_resets_as_often_as_it_is_told() {
        let resetter = Helper::start("exit 3").unwrap();
        for _ in 0..3 {
            resetter.begin().unwrap();
            let began = Instant::now();
            let how = loop {
                if let Some(how) = resetter.ended() {
                    break how;
                }
                assert!(began.elapsed() < Duration::from_secs(30));
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(how, "exit status: 3");
        }
    }

    #[test]
    fn one_reset_goes_on_at_a_time() {
        let resetter = Helper::start("sleep 3").unwrap();
        resetter.begin().unwrap();
        assert_eq!(resetter.ended(), None);
        assert!(resetter.begin().is_err());
    }
}
