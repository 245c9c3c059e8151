//! What takes long for what it finds: every example of the pages, pairs of options, broken captures, each benchmark once.

mod bench;
mod book;
mod mutants;
mod pairs;
