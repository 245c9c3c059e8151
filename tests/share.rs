//! Rings in shared memory between processes: the program, and readers in C, Python and libdaq.

mod c;
mod chains;
mod daq;
mod delay;
mod ends;
mod flood;
mod hostile;
mod kills;
mod many;
mod python;
mod refusals;
mod stage;
mod visible;
