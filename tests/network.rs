//! Tests of the command line between hosts of a network; they need root.

mod answer;
mod bridge;
mod endings;
mod filters;
mod generate;
mod idle;
mod lab;
mod measure;
mod merge;
mod methods;
mod replay;
mod rights;
mod router;
mod tunnels;
mod wire;
mod xdp;
