//! The program as its user runs it, between hosts of a network: needs root.

#[path = "network/answer.rs"]
mod answer;
#[path = "network/bridge.rs"]
mod bridge;
#[path = "network/endings.rs"]
mod endings;
#[path = "network/filters.rs"]
mod filters;
#[path = "network/generate.rs"]
mod generate;
#[path = "network/idle.rs"]
mod idle;
#[path = "network/lab.rs"]
mod lab;
#[path = "network/measure.rs"]
mod measure;
#[path = "network/merge.rs"]
mod merge;
#[path = "network/methods.rs"]
mod methods;
#[path = "network/replay.rs"]
mod replay;
#[path = "network/rights.rs"]
mod rights;
#[path = "network/router.rs"]
mod router;
#[path = "network/tunnels.rs"]
mod tunnels;
#[path = "network/wire.rs"]
mod wire;
#[path = "network/xdp.rs"]
mod xdp;
