//! Where frames enter and leave: what every port has to do, whatever its backend.
//!
//! - [`contract`]: what a receiving and a sending queue must do, small enough to fake and to fuzz;
//! - [`spec`]: `scheme:target[@queues][?key=value&...]`, as users write ports;
//! - [`options`]: what ports may be asked for;
//! - [`backend`]: what a backend says of itself;
//! - [`registry`]: which backends there are, and opening ports by them;
//! - [`held`]: frames that are held, changed, and sent on where they lie;
//! - [`scatter`]: frames that are read straight to where they are wanted;
//! - [`live`]: ports that make frames themselves.
//!
//! A backend of your own needs this crate alone: implement [`RxQueue`] and [`TxQueue`], write a [`Backend`], and open ports by
//! a [`Registry`] that has it.
//!
//! # The contract
//!
//! Shaped like `BufRead`: `fill(now)` shows what is there, `consume(n)` gives the first n back, `detach()` stops taking in, `wake()` is what
//! to wait on, `counters()` adds to the ledger. Since `fill` borrows its own queue alone, one thread holds the heads of many queues at once
//! in safe code.
//!
//! `fill` returns frames, horizon and interfaces *together* (`Head`). They are only true together: a horizon asked for separately could lie
//! beyond frames that arrived in between, and a pcapng file may describe a new interface right before its first frame. Errors come in
//! classes: again, down (may return), broken; an interface that is removed is broken, an end in order is a horizon. After `detach` a queue shows what had arrived, then `Horizon::Ended`; that is what makes
//! counters exact. `is_at_work()` says that the last fill came back in the middle of its work (4 MiB of a file without a frame): nobody
//! sleeps over it, and stop requests and other lanes get their turn.
//!
//! Ports of one run begin together ([`Registry::open_all`](registry::Registry::open_all)): what takes long is done for all before the first
//! one takes frames in (`RxOptions::paused`, [`RxQueue::start`]). A file takes the link type it was opened for, all other ports Ethernet.
//!
//! Frames can be taken out of a queue's order, kept, changed, and sent on from where they lie, if both queues can do that ([`held`]):
//! two capabilities that a backend may have, and need not.
//!
//! Whoever orders frames never asks a port for the time: `now` is an argument. Ports own the clocks of their devices, and stamp frames by them.
//!
//! A port says who moves its time on (`Feed`): the clock of this machine, others, or nobody (a file). Beside frames of the clock, others are
//! waited for 50 ms (or the lag, if that is more): a stopped sharer or the writer of a pipe cannot hold a live port up.
//!
//! # Passive by default
//!
//! A bare name opens `packet`, which takes nothing away from the host. Frames that the host itself sends come too, flagged, where the
//! port is opened to watch ([`RxOptions::outgoing`]) or `?direction=` asks for them. What takes frames away leaves them to the host too where that uses the interface, or wants `--take`. Sending into the
//! interface of the default route needs `--yes`.
#![forbid(unsafe_code)]

pub mod backend;
pub mod contract;
pub mod held;
pub mod live;
pub mod news;
pub mod options;
pub mod registry;
pub mod scatter;
pub mod spec;

pub use backend::{Backend, Found, Target, Works};
pub use contract::{Feed, Head, Monitor, PortError, RxPort, RxQueue, Sent, Tallied, TxPort, TxQueue};
pub use held::{Held, Holding, Region, Room, Submitting};
pub use live::{CATCH_UP, LATE, LiveBegun, LiveControl, LiveDone, LiveProgress, LiveSender, Unable};
pub use options::{RxOptions, TxOptions};
pub use registry::Registry;
pub use scatter::{Scatter, Scattered};
pub use spec::Spec;
