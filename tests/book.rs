//! Runs the commands of the documentation, `docs/` and README.md, and compares their output.

mod compare;
mod console;
