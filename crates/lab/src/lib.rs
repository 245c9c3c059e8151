//! Test hosts on one machine: network namespaces joined by veth pairs.
//!
//! A [`Plan`] has the hosts and the links between them; [`Lab::up`] creates them, and [`Lab::down`] removes them. The
//! hosts of lab `demo` are the namespaces `demo-left`, `demo-right` ..., created by `ip netns add`, so every tool for
//! namespaces works with them.
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
//! Guarantees:
//! - **Silence.** An interface has only the requested addresses; without one, the kernel sends nothing on it (no IPv6,
//!   ARP or multicast), so that "sent = captured" can hold.
//! - **Isolation.** The identity of every namespace (device and inode) is recorded before and after its creation.
//!   Namespaces that are not recorded, or were replaced under the same name, are not touched.
//! - **No leftovers.** After a crash at any time [`Lab::down`] can clean up; a [`TemporaryLab`] whose process died is
//!   removed by the next one ([`sweep`]).
//!
//! Modules, outside in: [`plan`] (requested configuration; text in [`text`]), [`lab`] and [`temporary`] (operations),
//! `make` (steps), `state` (what was created), `namespace`, `program` and `process` (the kernel, `ip`, and the
//! creator).
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
pub use lab::{Lab, LabSummary, OccupiedNamespace, Outcome, Removal, list};
pub use namespace::within;
pub use plan::{Host, Link, LinkEnd, Plan};
pub use temporary::{TemporaryLab, sweep};
