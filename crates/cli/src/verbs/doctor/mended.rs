//! `--fix`: changes, a command or a wait meanwhile, and all put back.

use super::fix::{Made, Step};
use super::tree::Tree;
use crate::exit::Exit;
use crate::view::terminal::{shown, tell};
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{PipeReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that ask to end.
const REQUESTS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Makes changes, runs the command or waits, and puts them back.
pub fn run(tree: &Tree, steps: Vec<Step<'_>>, command: &[String]) -> anyhow::Result<Exit> {
    // Before the first change: from here on no signal ends the program before they are put back.
    let mut signals = Signals::watch().context("cannot handle signals")?;
    tell(format_args!("\n{} changes, put back at the end:\n", steps.len()));
    for step in &steps {
        tell(format_args!("  {}\n", shown(&step.fix.command(step.port))));
    }
    let made = Made::make(tree, steps);
    let exit = match command.split_first() {
        None => {
            tell(format_args!("{} changes made; Ctrl-C puts them back\n", made.len()));
            signals.wait_for_request();
            Ok(Exit::Done)
        }
        Some((program, arguments)) => {
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
        let has_terminal = std::fs::File::open("/dev/tty").is_ok();
        let pid = Pid::from_child(&child);
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                // As a shell says it where a signal has ended it.
                let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
                return Ok(Exit::OfCommand(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            for signal in self.requests() {
                if signal != SIGINT || !has_terminal {
                    // It may have ended meanwhile, which shows above.
                    let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
                }
            }
            self.wait();
        }
    }
}
