//! Clocks of the host: whether the time is synchronised (adjtimex(2)).
//!
//! Unsafe because the answer is a structure that the kernel writes. Reading needs no privilege.
#![allow(unsafe_code)]

use std::io;

/// Returns the state of the kernel's clock: the state (`TIME_ERROR` = 5), status bits (`STA_*`), and the maximum error,
/// in microseconds.
pub(crate) fn adjusted() -> io::Result<(i32, i32, i64)> {
    // SAFETY: all-zero is a valid timex; without modes nothing is set.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into the structure it is given, and nowhere else.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((result, state.status, state.maxerror)) }
}
