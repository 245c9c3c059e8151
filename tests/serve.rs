//! The HTTP server: driven by the published client, and asked by those who may not.
//!
//! - `clients`: snappi, unchanged, between two hosts; `devices`: beside a host of the kernel;
//! - `described`: requests and answers beside the published description;
//! - `flip`: a relay that changes a byte of answers;
//! - `hostile`: requests that are refused while traffic goes on;
//! - `own`: what is not of the model;
//! - `page`: the page, in a headless Chromium;
//! - `sent`: what was sent, of many flows, over a link that goes down, by a server that is ended;
//! - `many`, `methods`, `replay`, `sequence`: pages of streams, measurements, recordings, streams one after the other;
//! - `stage`: a server on the two ends of a wire, and requests as bytes.

#[path = "serve/clients.rs"]
mod clients;
#[path = "serve/described.rs"]
mod described;
#[path = "serve/devices.rs"]
mod devices;
#[path = "serve/flip.rs"]
mod flip;
#[path = "serve/hostile.rs"]
mod hostile;
#[path = "serve/many.rs"]
mod many;
#[path = "serve/methods.rs"]
mod methods;
#[path = "serve/own.rs"]
mod own;
#[path = "serve/page.rs"]
mod page;
#[path = "serve/replay.rs"]
mod replay;
#[path = "serve/sent.rs"]
mod sent;
#[path = "serve/sequence.rs"]
mod sequence;
#[path = "serve/stage.rs"]
mod stage;
