//! The switch: compared with Open vSwitch, through the receive loop, and as a program.
//!
//! - `ovs`: Open vSwitch with its dummy datapath, which needs no privileges and no interface;
//!   `random`: rules and frames; `compare`: both get the same input, and the same bytes leave on the same ports,
//!   except for the differences listed there;
//! - `inspected`: rules with an inspection engine, between ports in memory;
//!   `engines`: the same between hosts, with engines that are killed;
//! - `program`: the verb, on files, in namespaces, and with rule changes; `rule_replacement`: with all rules replaced.

mod compare;
mod engines;
mod inspected;
mod ovs;
mod program;
mod random;
mod rule_replacement;
