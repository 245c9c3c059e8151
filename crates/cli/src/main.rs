//! The program.

use clap::Parser;
use linerate_cli::exit::Exit;
use linerate_cli::signals;
use linerate_cli::verbs::{Program, run};
use linerate_cli::view::terminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    signals::bear_requests();
    let exit = match Program::try_parse() {
        Ok(program) => run(program.verb).unwrap_or_else(|error| {
            terminal::fail(format_args!("{error:#}"));
            Exit::of(&error)
        }),
        Err(error) => terminal::explain(&error),
    };
    terminal::end(exit).into()
}
