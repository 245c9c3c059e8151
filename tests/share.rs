//! Rings in shared memory between processes: the program, and readers in C, Python and libdaq.

mod c;
mod chains;
mod daq;
mod delay;
mod fixtures;
mod flood;
mod hostile;
mod kills;
mod latency;
mod many_readers;
mod python;
mod refusals;
mod writer_exit;
