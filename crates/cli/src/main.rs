//! Entry point of the program.
//!
//! Unsafe code: one function runs before the runtime, which replaces a closed standard output by /dev/null; after that the loss
//! of results could not be detected.
#![allow(unsafe_code)]

use linerate_cli::exit::{Exit, error_text};
use linerate_cli::privileges;
use linerate_cli::signals;
use linerate_cli::verbs::{read, run};
use linerate_cli::view::{document, terminal};
use std::process::ExitCode;

// SAFETY: each pointer in this section is called once, before `main`, by a loader whose arguments the function ignores. It
// makes one system call, takes no lock and does not use the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = terminal::note_closed_output;

fn main() -> ExitCode {
    document::note_start();
    signals::ignore_sigusr1();
    privileges::acquire();
    // The makefile sets the commit.
    let exit = match read(option_env!("LINERATE_COMMIT")) {
        Ok(verb) => verb.and_then(run).unwrap_or_else(|error| {
            terminal::fail(error_text(&error));
            Exit::of(&error)
        }),
        Err(error) => terminal::explain(&error),
    };
    if exit == Exit::Lost {
        terminal::fail("--lossless: packets or records were lost, or may have been; exit status 3");
    }
    terminal::end(exit).into()
}
