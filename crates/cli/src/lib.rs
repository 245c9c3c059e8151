//! The program: one file a verb, what they print, and with whose rights they run. As a library: the crate `linerate`.
//!
//! # Rights
//!
//! Once ports are open the program becomes the user who called sudo, doas or pkexec (or `-Z USER`; of root at interfaces `linerate` or
//! `nobody`), drops every capability, and opens outputs as that user: no owner and no mode is ever changed. Memory of rings and tables
//! is taken before. Then `privileges/confine` leaves the system calls of a list (`privileges/calls`) and, to write in, the folders of
//! the outputs. A new system call in a run belongs into that list: what is not there looks like a kernel that lacks it (ENOSYS).
//!
//! # Signals
//!
//! The first asks the run to stop; one that comes before there is a run is remembered. Those within a second of it are the same
//! request (timeout(1) signals twice), a later one has it hurry, a third ends. What waits for others before the run begins goes
//! through `signals::waiting`, or nothing would end it.
//!
//! # What is printed
//!
//! `view/terminal` is the only file that prints: it escapes what a terminal would obey, takes a closed pipe as an end and any other
//! failure of standard output as one of the run. A name in a line goes through `shown`, or it could bring lines of its own. Views
//! never slow the data path: the run writes counters, a thread of its own prints them. JSON: `docs/json.md`. A live
//! view has the whole terminal (`view/screen`), which is put back however it ends.
#![forbid(unsafe_code)]

pub mod about;
pub mod exit;
pub mod privileges;
pub mod signals;
pub mod verbs;
pub mod view;
