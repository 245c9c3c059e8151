//! `--fix`: makes changes, runs a command or waits, and restores them.

use super::fix::{AppliedFixes, Step};
use super::tree::Tree;
use crate::exit::Exit;
use crate::view::rates::counted;
use crate::view::terminal::{print_stderr, print_unfolded};
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

/// Signals that stop the run.
const REQUESTS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Those that a terminal sends to its whole foreground process group.
const KEYS: [i32; 2] = [SIGINT, SIGQUIT];

/// Makes changes, runs the command or waits, and restores them.
pub(super) fn run(tree: &Tree, steps: Vec<Step<'_>>, command: &[String]) -> anyhow::Result<Exit> {
    // Before the first change: from here on no signal ends the program before they are restored.
    let mut signals = Signals::watch().context("cannot handle signals")?;
    print_stderr(format_args!("\n{}, restored at the end:\n", counted(steps.len() as u64, "change")));
    for step in &steps {
        print_unfolded(&format!("  {}", step.fix.command(step.port)));
    }
    let made = AppliedFixes::make(tree, steps);
    let exit = match command.split_first() {
        None => {
            print_stderr(format_args!("{} made; press Ctrl-C to restore\n", counted(made.len() as u64, "change")));
            signals.wait_for_request();
            Ok(Exit::Done)
        }
        Some((program, arguments)) => {
            // A stop request during the changes also cancels the command.
            if let Some(signal) = signals.requests().first() {
                return Ok(of_signal(*signal));
            }
            let child = Command::new(program).args(arguments).spawn();
            child
                .with_context(|| format!("cannot run {program}"))
                .and_then(|child| signals.wait_forwarding_signals(child))
        }
    };
    drop(made);
    exit
}

/// Received signals, and a pipe that becomes readable with each.
struct Signals {
    pipe: PipeReader,
    received: [Arc<AtomicBool>; REQUESTS.len()],
}

impl Signals {
    fn watch() -> std::io::Result<Signals> {
        let (reader, writer) = std::io::pipe()?;
        let received: [Arc<AtomicBool>; REQUESTS.len()] = Default::default();
        for (signal, flag) in REQUESTS.iter().zip(&received) {
            flag::register(*signal, Arc::clone(flag))?;
        }
        for signal in REQUESTS.into_iter().chain([SIGCHLD]) {
            pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Signals { pipe: reader, received })
    }

    /// Returns the signals received since the last call.
    fn requests(&self) -> Vec<i32> {
        let received = REQUESTS.iter().zip(&self.received).filter(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        received.map(|(signal, _)| *signal).collect()
    }

    /// Waits for any signal.
    fn wait(&mut self) {
        // A signal between the check and this has left its byte.
        let _ = self.pipe.read(&mut [0; 64]);
    }

    fn wait_for_request(&mut self) {
        while self.requests().is_empty() {
            self.wait();
        }
    }

    /// Waits for a command to end and forwards signals of this process to it, except those that it got from the terminal itself.
    fn wait_forwarding_signals(&mut self, mut child: Child) -> anyhow::Result<Exit> {
        let pid = Pid::from_child(&child);
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                let of_code = |code| Exit::OfCommand(u8::try_from(code).unwrap_or(u8::MAX));
                return Ok(status.code().map_or_else(|| of_signal(status.signal().unwrap_or_default()), of_code));
            }
            for signal in self.requests() {
                if !(KEYS.contains(&signal) && is_in_foreground()) {
                    // The command may have ended: checked above.
                    let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
                }
            }
            self.wait();
        }
    }
}

/// Returns the exit status of a command that a signal ended, as a shell reports it.
fn of_signal(signal: i32) -> Exit {
    Exit::OfCommand(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Returns whether this process is in the foreground group of its terminal. The command is in the same group.
fn is_in_foreground() -> bool {
    std::fs::File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}
