//! Tests of the command line between hosts of a network; they need root.

mod answer;
mod bridge;
mod filters;
mod generate;
mod idle;
mod lab;
mod measure;
mod merge;
mod methods;
mod privileges;
mod replay;
mod router;
mod shutdown;
mod tunnels;
mod wire;
mod xdp;
