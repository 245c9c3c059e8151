//! The program.

use linerate_cli::exit::{Exit, told};
use linerate_cli::privileges;
use linerate_cli::signals;
use linerate_cli::verbs::{read, run};
use linerate_cli::view::terminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    signals::bear_requests();
    privileges::take_up();
    // The makefile says which one.
    let exit = match read(option_env!("LINERATE_COMMIT")) {
        Ok(verb) => verb.and_then(run).unwrap_or_else(|error| {
            terminal::fail(told(&error));
            Exit::of(&error)
        }),
        Err(error) => terminal::explain(&error),
    };
    terminal::end(exit).into()
}
