//! Flow records as columns.
#![forbid(unsafe_code)]
