//! Tests of the crate by its public interface, one executable.

mod at_work;
mod copying;
mod died;
mod flows;
mod print;
mod several;
mod taking;
mod told;
mod transmit;
