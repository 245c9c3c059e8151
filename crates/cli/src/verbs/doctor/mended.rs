//! `--fix`: changes, a command or a wait meanwhile, and all put back.

use super::fix::{Made, Step};
use super::tree::Tree;
use crate::exit::Exit;
use crate::view::terminal::{tell, tell_whole};
use anyhow::Context;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{PipeReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that ask to end.
const REQUESTS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Those of them that a terminal sends to all of its foreground process group.
const KEYS: [i32; 2] = [SIGINT, SIGQUIT];

/// Makes changes, runs the command or waits, and puts them back.
pub(super) fn run(tree: &Tree, steps: Vec<Step<'_>>, command: &[String]) -> anyhow::Result<Exit> {
    // Before the first change: from here on no signal ends the program before they are put back.
    let mut signals = Signals::watch().context("cannot handle signals")?;
    tell(format_args!("\n{} changes, put back at the end:\n", steps.len()));
    for step in &steps {
        tell_whole(&format!("  {}", step.fix.command(step.port)));
    }
    let made = Made::make(tree, steps);
    let exit = match command.split_first() {
        None => {
            tell(format_args!("{} changes made; Ctrl-C puts them back\n", made.len()));
            signals.wait_for_request();
            Ok(Exit::Done)
        }
        Some((program, arguments)) => {
            // Whoever wanted to end it while the changes were made wants no command either.
            if let Some(signal) = signals.requests().first() {
                return Ok(of_signal(*signal));
            }
            let child = Command::new(program).args(arguments).spawn();
            child.with_context(|| format!("cannot run {program}")).and_then(|child| signals.pass_on_to(child))
        }
    };
    drop(made);
    exit
}

/// Signals that came, and a pipe that says so.
struct Signals {
    told: PipeReader,
    came: [Arc<AtomicBool>; REQUESTS.len()],
}

impl Signals {
    fn watch() -> std::io::Result<Signals> {
        let (told, tells) = std::io::pipe()?;
        let came: [Arc<AtomicBool>; REQUESTS.len()] = Default::default();
        for (signal, came) in REQUESTS.iter().zip(&came) {
            flag::register(*signal, Arc::clone(came))?;
        }
        for signal in REQUESTS.into_iter().chain([SIGCHLD]) {
            pipe::register(signal, tells.try_clone()?)?;
        }
        Ok(Signals { told, came })
    }

    /// Those that came since the last look.
    fn requests(&self) -> Vec<i32> {
        let came = REQUESTS.iter().zip(&self.came).filter(|(_, came)| came.swap(false, Ordering::SeqCst));
        came.map(|(signal, _)| *signal).collect()
    }

    /// Waits until a signal has come, whichever.
    fn wait(&mut self) {
        // A signal that comes between the look and this has left its byte.
        let _ = self.told.read(&mut [0; 64]);
    }

    fn wait_for_request(&mut self) {
        while self.requests().is_empty() {
            self.wait();
        }
    }

    /// Waits for the end of a command, which gets the signals of this process; of Ctrl-C the terminal has told it already.
    fn pass_on_to(&mut self, mut child: Child) -> anyhow::Result<Exit> {
        let pid = Pid::from_child(&child);
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                let of_code = |code| Exit::OfCommand(u8::try_from(code).unwrap_or(u8::MAX));
                return Ok(status.code().map_or_else(|| of_signal(status.signal().unwrap_or_default()), of_code));
            }
            for signal in self.requests() {
                if !(KEYS.contains(&signal) && is_in_foreground()) {
                    // It may have ended meanwhile, which shows above.
                    let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
                }
            }
            self.wait();
        }
    }
}

/// The status of a command that a signal has ended, as a shell says it.
fn of_signal(signal: i32) -> Exit {
    Exit::OfCommand(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Whether keys of the terminal are signals to this process, and so to the command, which is in its group.
fn is_in_foreground() -> bool {
    std::fs::File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}
