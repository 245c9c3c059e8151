//! The program.

use linerate_cli::exit::Exit;
use linerate_cli::signals;
use linerate_cli::verbs::{read, run};
use linerate_cli::view::terminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    signals::bear_requests();
    let exit = match read() {
        Ok(verb) => verb.and_then(run).unwrap_or_else(|error| {
            terminal::fail(format_args!("{error:#}"));
            Exit::of(&error)
        }),
        Err(error) => terminal::explain(&error),
    };
    terminal::end(exit).into()
}
