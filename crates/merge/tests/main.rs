//! Tests of the crate through its public interface, one executable.

mod clock;
mod order;
mod schedules;
