//! The command-line program: one file per verb, output, and privileges. For a library see the crate `linerate`.
//!
//! # Rights
//!
//! After opening ports the program becomes the user who called sudo, doas or pkexec (or `-Z USER`; for root at interfaces `linerate`
//! or `nobody`), drops every capability, and opens outputs as that user: owners and modes are never changed. Memory of rings and
//! tables is allocated before. Then `privileges/confine` allows only the system calls in `privileges/calls`, and writing only in the
//! folders of the outputs. Add each new system call of a run to that list: others fail with ENOSYS, as on a kernel without them.
//!
//! # Signals
//!
//! The first signal stops the run; one that arrives before the run is remembered. Those within a second of it are the same
//! request (timeout(1) signals twice), a later one skips waiting for others, a third ends the program. Anything that may block
//! before the run starts goes through `signals::waiting`, or no signal could end it.
//!
//! # Output
//!
//! `view/terminal` is the only file that prints: it escapes control sequences, ends output at a closed pipe, and reports any other
//! failure of standard output as a failure of the run. Names in a line go through `shown`, so that they cannot add lines. Views
//! never slow the data path: the run writes counters, and a separate thread prints them. JSON: `docs/json.md`. A live view uses the
//! whole terminal (`view/screen`), which is always restored.
#![forbid(unsafe_code)]

pub mod about;
pub mod exit;
pub mod privileges;
pub mod signals;
pub mod verbs;
pub mod view;
