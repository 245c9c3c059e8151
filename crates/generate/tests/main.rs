//! Tests of the crate by its public interface, one executable.

mod check;
mod commands;
mod file;
mod packet;
mod plan;
mod render;
mod set_errors;
mod sets;
mod timeline;
