//! Filters against those who know: libpcap's own interpreter, the kernel, and tcpdump.
//!
//! What is missing on a machine (libpcap, tcpdump, the captures that `LINERATE_CORPUS` names) is said
//! loudly and skipped.

mod captures;
mod filters;
mod kernel;
mod libpcap;
mod programs;
mod tcpdump;
