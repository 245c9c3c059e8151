//! Shell command that resets the device under test, once per trial.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shell that is started before privileges are dropped, and runs its command for each reset.
pub struct Helper(Mutex<Shell>);

struct Shell {
    input: ChildStdin,
    /// Exit status of each run, one per line; reading does not block.
    output: ChildStdout,
    /// Output read but not yet processed.
    pending: String,
    is_busy: bool,
}

/// Script that runs its first argument for each input line, and prints the exit status.
const LOOP: &str = r#"while read -r go; do sh -c "$1" </dev/null >/dev/null; echo "$?"; done"#;

impl Helper {
    /// Starts the shell, which waits for resets and ends with this process.
    ///
    /// # Errors
    /// If the shell cannot be started.
    pub fn start(command: &str) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", LOOP, "sh", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn()?;
        let (Some(input), Some(output)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err(io::Error::other("the shell has no pipes"));
        };
        rustix::io::ioctl_fionbio(output.as_fd(), true)?;
        Ok(Helper(Mutex::new(Shell { input, output, pending: String::new(), is_busy: false })))
    }

    /// Starts a reset.
    ///
    /// # Errors
    /// If the previous reset is still running, or the shell has exited.
    pub fn begin(&self) -> io::Result<()> {
        self.ended();
        let mut shell = self.shell();
        if shell.is_busy {
            return Err(io::Error::other("the previous reset is still running"));
        }
        shell.input.write_all(b"go\n")?;
        shell.is_busy = true;
        Ok(())
    }

    /// Returns the exit status of the reset, once it has finished.
    pub fn ended(&self) -> Option<String> {
        let mut shell = self.shell();
        let mut bytes = [0; 64];
        // An error may also mean that nothing can be read yet: the reset is still running.
        if let Ok(length) = shell.output.read(&mut bytes) {
            shell.pending += &String::from_utf8_lossy(&bytes[..length]);
        }
        let status = shell.pending.strip_suffix('\n')?.to_owned();
        (shell.is_busy, shell.pending) = (false, String::new());
        Some(format!("exit status: {status}"))
    }

    fn shell(&self) -> MutexGuard<'_, Shell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_shell_runs_each_reset() {
        let resetter = Helper::start("exit 3").unwrap();
        for _ in 0..3 {
            resetter.begin().unwrap();
            let started = Instant::now();
            let how = loop {
                if let Some(how) = resetter.ended() {
                    break how;
                }
                assert!(started.elapsed() < Duration::from_secs(30));
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(how, "exit status: 3");
        }
    }

    #[test]
    fn concurrent_resets_are_rejected() {
        let resetter = Helper::start("sleep 3").unwrap();
        resetter.begin().unwrap();
        assert_eq!(resetter.ended(), None);
        assert!(resetter.begin().is_err());
    }
}
