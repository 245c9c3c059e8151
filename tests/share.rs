//! Rings in shared memory between processes: the program and a reader in C, as their users run them.

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
