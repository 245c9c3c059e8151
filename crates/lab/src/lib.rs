//! Test hosts on one machine: network namespaces joined by veth pairs.
//!
//! A [`Plan`] says which hosts there are and which links join them; [`Lab::up`] makes it so, and
//! [`Lab::down`] takes it away. The hosts of lab `demo` are the namespaces `demo-left`, `demo-right`
//! ..., made by `ip netns add`, so everything that knows namespaces can use them.
//!
//! ```no_run
//! use linerate_lab::{Lab, Plan};
//!
//! let link = "left:eth0,right:eth0,queues=4,mtu=22000".parse()?;
//! let lab = Lab::up(&Plan::from_links("demo", vec![link])?)?;
//! lab.exec("left", "ip")?.args(["link", "show"]).status()?;
//! Lab::down("demo")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a lab keeps:
//! - **Silence.** An interface has the addresses that were asked for and no other; without one, the
//!   kernel sends nothing on it (no IPv6, no ARP, no multicast), so that "sent = captured" can hold.
//! - **Only its own.** Every namespace is recorded with its identity (device and inode) before and
//!   after it is made. What is not recorded, or is another namespace under the same name, is not touched.
//! - **No remains.** A crash at any instant leaves a state from which [`Lab::down`] cleans up;
//!   a [`TemporaryLab`] whose process died is removed by the next one ([`sweep`]).
//!
//! The modules, outside in: [`plan`] (what is wanted; text in [`text`]), [`lab`] and [`temporary`]
//! (the verbs), `make` (the steps), `state` (what was made), `namespace`, `program` and `process`
//! (the kernel, `ip`, and who made it).
#![forbid(unsafe_code)]

pub mod address;
pub mod error;
pub mod lab;
mod make;
mod names;
pub mod namespace;
pub mod plan;
mod process;
mod program;
mod state;
pub mod temporary;
pub mod text;

pub use address::Cidr;
pub use error::{LabError, PlanError};
pub use lab::{Down, Lab, Occupied, Outcome, Summary, list};
pub use namespace::within;
pub use plan::{End, Host, Link, Plan};
pub use temporary::{TemporaryLab, sweep};
