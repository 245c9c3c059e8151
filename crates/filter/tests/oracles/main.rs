//! Filters compared with libpcap's own interpreter, the kernel, and tcpdump.
//!
//! Tests whose tools are missing (libpcap, tcpdump, the captures that `LINERATE_CORPUS` names) print a note and are
//! skipped.

mod captures;
mod filters;
mod kernel;
mod libpcap;
mod programs;
mod tcpdump;
