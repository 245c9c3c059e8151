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

mod clients;
mod described;
mod devices;
mod flip;
mod hostile;
mod many;
mod methods;
mod own;
mod page;
mod replay;
mod sent;
mod sequence;
mod stage;
