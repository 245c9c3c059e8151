//! Tests with ports: network namespaces, rings, sockets of this machine.

mod bounds;
mod conformance;
mod inline;
mod live;
mod memif;
mod network;
mod receive;
mod recording;
mod send;
mod share;
mod switch;
mod top;
