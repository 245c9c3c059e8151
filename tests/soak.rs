//! Long tests: every example of the pages, pairs of options, broken captures, each benchmark once.

mod bench;
mod book;
mod mutants;
mod pairs;
