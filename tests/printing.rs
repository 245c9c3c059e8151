//! Packets as text.
//!
//! - `golden`: expected lines for packets of each protocol;
//! - `agreement`: comparison with tcpdump for every frame of the corpus;
//! - `program`: `capture --print` of files, and its options;
//! - `live`: `capture --print` of interfaces;
//! - `command_lines`: command lines of tcpdump users.

mod agreement;
mod command_lines;
mod golden;
mod live;
mod program;
