//! The program.

use clap::Parser;
use linerate::exit::Exit;
use linerate::verbs::{Program, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = Program::parse();
    match run(program.verb) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("linerate: {error:#}");
            Exit::of(&error).into()
        }
    }
}
