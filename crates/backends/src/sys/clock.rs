//! The clocks of the host: whether somebody keeps the time right (adjtimex(2)).
//!
//! Unsafe because the answer is a structure that the kernel writes. Reading needs no privilege.
#![allow(unsafe_code)]

use std::io;

/// What the kernel knows of its clock: the state (`TIME_ERROR` = 5), status bits (`STA_*`), and how wrong it may be, in
/// microseconds.
pub(crate) fn adjusted() -> io::Result<(i32, i32, i64)> {
    // SAFETY: all-zero is a valid timex; without modes nothing is set.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into the structure it is given, and nowhere else.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((result, state.status, state.maxerror)) }
}
