//! Where frames enter and leave: what every port has to do, whatever its backend.
//!
//! - [`contract`]: what a receiving and a sending queue must do, small enough to fake and to fuzz;
//! - [`spec`]: `scheme:target[@queues][?key=value&...]`, as users write ports;
//! - [`options`]: what ports may be asked for;
//! - [`live`]: ports that make frames themselves, from streams.
#![forbid(unsafe_code)]

pub mod contract;
pub mod live;
pub mod options;
pub mod spec;

pub use contract::{Feed, Head, Monitor, PortError, RxPort, RxQueue, Sent, TxPort, TxQueue};
pub use live::{LiveControl, LiveProgress, LiveSender, Unable};
pub use options::{RxOptions, TxOptions};
pub use spec::Spec;
