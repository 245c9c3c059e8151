//! Any answers of a broker or database, and any journal of a spool, are parsed or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| linerate_export::export::read_anything(bytes));
