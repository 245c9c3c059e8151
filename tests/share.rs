//! Rings in shared memory between processes: the program and a reader in C, as their users run them.

#[path = "share/c.rs"]
mod c;
#[path = "share/chains.rs"]
mod chains;
#[path = "share/daq.rs"]
mod daq;
#[path = "share/delay.rs"]
mod delay;
#[path = "share/ends.rs"]
mod ends;
#[path = "share/flood.rs"]
mod flood;
#[path = "share/hostile.rs"]
mod hostile;
#[path = "share/kills.rs"]
mod kills;
#[path = "share/many.rs"]
mod many;
#[path = "share/python.rs"]
mod python;
#[path = "share/refusals.rs"]
mod refusals;
#[path = "share/stage.rs"]
mod stage;
#[path = "share/visible.rs"]
mod visible;
