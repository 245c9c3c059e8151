//! The program.

use clap::Parser;
use linerate::exit::Exit;
use linerate::signals;
use linerate::verbs::{Program, run};
use linerate::view::terminal;
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
