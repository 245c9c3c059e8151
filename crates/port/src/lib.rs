//! Where frames enter and leave: what every port has to do, whatever its backend.
//!
//! - [`contract`]: what a receiving and a sending queue must do, small enough to fake and to fuzz;
//! - [`spec`]: `scheme:target[@queues][?key=value&...]`, as users write ports;
//! - [`options`]: what ports may be asked for;
//! - [`backend`]: what a backend says of itself;
//! - [`registry`]: which backends there are, and opening ports by them;
//! - [`live`]: ports that make frames themselves.
//!
//! A backend of your own needs this crate alone: implement [`RxQueue`] and [`TxQueue`], write a [`Backend`], and open ports by
//! a [`Registry`] that has it.
#![forbid(unsafe_code)]

pub mod backend;
pub mod contract;
pub mod live;
pub mod options;
pub mod registry;
pub mod spec;

pub use backend::{Backend, Found, Judge, Target};
pub use contract::{Feed, Head, Monitor, PortError, RxPort, RxQueue, Sent, TxPort, TxQueue};
pub use live::{LiveControl, LiveProgress, LiveSender, Unable};
pub use options::{RxOptions, TxOptions};
pub use registry::Registry;
pub use spec::Spec;
