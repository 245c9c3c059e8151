//! Frames as text.
//!
//! - `golden`: lines of packets of each protocol;
//! - `agreement`: the same lines as tcpdump's, for every frame of the corpus;
//! - `program`: `capture --print`, its options, and how it ends;
//! - `live`: of interfaces, as frames come.

mod agreement;
mod golden;
mod live;
mod program;
mod typed;
