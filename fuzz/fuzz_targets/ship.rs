//! Whatever a broker or a database answers, and whatever stands in the journal of a spool: it is read, or it is none.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| linerate_records::export::read_anything(bytes));
