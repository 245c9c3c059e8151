//! Ports, where frames enter and leave: the contract between backends and the engine.
//!
//! - [`contract`]: traits of receiving and sending queues, small enough to fake and to fuzz;
//! - [`spec`]: `scheme:target[@queues][?key=value&...]`, as users write ports;
//! - [`options`]: options of ports;
//! - [`backend`]: description of a backend;
//! - [`registry`]: the available backends, and opening ports by them;
//! - [`held_frame`]: frames that are held, changed, and sent in place;
//! - [`scatter`]: frames that are read straight to their destination;
//! - [`live`]: ports that generate frames themselves.
//!
//! A custom backend needs only this crate: implement [`RxQueue`] and [`TxQueue`], write a [`Backend`], and open ports
//! by a [`Registry`] that contains it.
//!
//! # The contract
//!
//! A queue is shaped like `BufRead`: `fill(now)` returns the frames that are ready, `consume(n)` releases the first n,
//! `detach()` stops taking in, `wake()` returns the descriptor to poll, `counters()` adds to the ledger. Since `fill`
//! borrows only its own queue, one thread holds the heads of many queues at once in safe code.
//!
//! `fill` returns frames, horizon and interfaces *together* (`Head`). They are only consistent together: a horizon
//! queried separately could lie beyond frames that arrived in between, and a pcapng file may describe a new interface
//! right before its first frame. Errors have classes: again, down (may return), broken; a removed interface is broken,
//! a regular end is a horizon. After `detach` a queue returns what had arrived, then `Horizon::Ended`; that makes
//! counters exact. `has_pending_work()` means that the last fill returned early (after 4 MiB of a file without a frame): the
//! caller does not sleep, and stop requests and other lanes get their turn.
//!
//! Ports of one run start together ([`Registry::open_all`](registry::Registry::open_all)): slow preparations are
//! finished for all before the first one takes frames in (`RxOptions::paused`, [`RxQueue::start`]). A file takes the
//! link type it was opened for, all other ports Ethernet.
//!
//! Frames can be taken out of a queue's order, kept, changed, and sent in place, if both queues support that
//! ([`held_frame`]): two optional capabilities of a backend.
//!
//! A merge never asks a port for the time: `now` is an argument. Ports own the clocks of their devices, and stamp
//! frames by them.
//!
//! A port declares its clock source (`Feed`): the clock of this machine, an external source, or none (a file). Frames
//! of clocked ports wait for external sources for 50 ms (or the lag, if that is more): a stopped sharer or the writer
//! of a pipe cannot stall a live port.
//!
//! # Passive by default
//!
//! A bare name opens `packet`, which takes nothing away from the host. Frames that the host itself sends are received
//! too, flagged, if the port is opened for capture ([`RxOptions::outgoing`]) or `?direction=` asks for them. Backends
//! that take frames away pass them to the host too if it uses the interface, or require `--take`. Sending into the
//! interface of the default route requires `--yes`.
#![forbid(unsafe_code)]

pub mod backend;
pub mod contract;
pub mod events;
pub mod held_frame;
pub mod live;
pub mod options;
pub mod registry;
pub mod scatter;
pub mod spec;

pub use backend::{Backend, InterfaceCheck, InterfaceInfo, Target};
pub use contract::{Feed, FrameTally, Head, Monitor, PortError, RxPort, RxQueue, Sent, TxPort, TxQueue};
pub use held_frame::{HeldFrame, HoldQueue, Region, Room, SubmitQueue};
pub use live::{AppliedCommands, CATCH_UP, LATE, LiveControl, LiveProgress, LiveSender, RestartedStream, Unable};
pub use options::{RxOptions, TxOptions};
pub use registry::Registry;
pub use scatter::{ScatterQueue, ScatteredFrame};
pub use spec::Spec;
