//! Long tests: every example of the pages, pairs of options, damaged captures, and each benchmark once.

mod bench;
mod book;
mod mutants;
mod pairs;
