//! Who resets the device that is measured: a command of the shell, begun once a trial.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whoever resets it.
pub enum Resetter {
    /// A command that is run when it is needed.
    Command(String),
    /// One that waits.
    Helper(Arc<Helper>),
}

/// A reset that goes on.
pub enum Resetting<'a> {
    /// A process of this one.
    Child(Child),
    /// What the shell that waits does.
    Helper(&'a Helper),
}

/// A shell that is started while the program may start others, and runs its command whenever it is told to: a server gives that right up.
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

impl Resetter {
    /// Begins a reset.
    ///
    /// # Errors
    /// Why there is none.
    pub fn begin(&self) -> io::Result<Resetting<'_>> {
        Ok(match self {
            Resetter::Command(command) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
                Resetting::Child(shell.spawn()?)
            }
            Resetter::Helper(helper) => {
                helper.begin()?;
                Resetting::Helper(helper)
            }
        })
    }
}

impl Resetting<'_> {
    /// How it ended, once it has.
    pub fn ended(&mut self) -> Option<String> {
        match self {
            Resetting::Child(child) => child.try_wait().ok().flatten().map(|status| status.to_string()),
            Resetting::Helper(helper) => helper.ended().map(|status| format!("exit status: {status}")),
        }
    }

    /// Nobody waits for it any more.
    pub fn give_up(self) -> &'static str {
        match self {
            Resetting::Child(mut child) => {
                let _ = child.kill();
                let _ = child.wait();
                "it did not end before the trial and was killed"
            }
            Resetting::Helper(_) => "it did not end before the trial",
        }
    }
}

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

    fn begin(&self) -> io::Result<()> {
        self.ended();
        let mut waiting = self.waiting();
        if waiting.is_busy {
            return Err(io::Error::other("the one before has not ended yet"));
        }
        waiting.ask.write_all(b"go\n")?;
        waiting.is_busy = true;
        Ok(())
    }

    /// The status of the run, once it has ended.
    fn ended(&self) -> Option<String> {
        let mut waiting = self.waiting();
        let mut bytes = [0; 64];
        // Nothing to be read is an error too, and means that it goes on.
        if let Ok(length) = waiting.told.read(&mut bytes) {
            waiting.said += &String::from_utf8_lossy(&bytes[..length]);
        }
        let status = waiting.said.strip_suffix('\n')?.to_owned();
        (waiting.is_busy, waiting.said) = (false, String::new());
        Some(status)
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
        let resetter = Resetter::Helper(Arc::new(Helper::start("exit 3").unwrap()));
        for _ in 0..3 {
            let mut running = resetter.begin().unwrap();
            let began = Instant::now();
            let how = loop {
                if let Some(how) = running.ended() {
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
        let resetter = Resetter::Helper(Arc::new(Helper::start("sleep 3").unwrap()));
        let mut running = resetter.begin().unwrap();
        assert_eq!(running.ended(), None);
        assert!(resetter.begin().is_err());
        assert_eq!(running.give_up(), "it did not end before the trial");
    }
}
