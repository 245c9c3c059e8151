//! The switch: beside Open vSwitch, through the receive loop, and as a program.
//!
//! - `ovs`: Open vSwitch with its dummy datapath, which needs no rights and no interface; `random`: rules and frames; `compare`: both
//!   are given the same, and the same bytes leave by the same ports; `differences`: but for what is named there;
//! - `inspected`: rules that have an engine decide, between ports in memory; `engines`: the same between hosts, with engines that are killed;
//! - `program`: the verb, on files, in namespaces, and while it is changed; `replaced`: while all of its rules are.

mod compare;
mod engines;
mod inspected;
mod ovs;
mod program;
mod random;
mod replaced;
