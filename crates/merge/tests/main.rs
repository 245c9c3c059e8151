//! Tests of the crate by its public interface, one executable.

mod clock;
mod order;
mod schedules;
