//! Where frames enter and leave: the port contract, the registry of backends, and the backends.
//!
//! - [`contract`]: what a receiving and a sending queue must do, small enough to fake and to fuzz;
//! - [`spec`]: `scheme:target[@queues][?key=value&...]`, as users write ports;
//! - [`options`]: what ports may be asked for;
//! - [`registry`]: one row a backend;
//! - [`backends`]: one file a backend; system calls stay in `backends/sys/`;
//! - [`live`]: ports that make frames themselves, from streams;
//! - [`ebpf`]: instructions for programs that run in the kernel;
//! - [`counting`]: a receiver that only counts;
//! - [`netns`]: opening things inside a network namespace;
//! - [`inventory`]: what interfaces there are and what they can do.
#![deny(unsafe_code)]

pub mod backends;
pub mod contract;
pub mod counting;
pub mod ebpf;
pub mod inventory;
pub mod live;
pub mod netns;
mod nic;
pub mod options;
pub mod registry;
mod rtnl;
pub mod spec;

pub use contract::{Feed, Head, PortError, RxPort, RxQueue, Sent, TxPort, TxQueue};
pub use live::{LiveControl, LiveProgress, LiveSender, Unable};
pub use options::{RxOptions, TxOptions};
pub use registry::{open_rx, open_tx};
pub use spec::Spec;
