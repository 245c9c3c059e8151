//! The HTTP server: driven by the published client, and by unauthorised and malformed requests.
//!
//! - `clients`: snappi, unmodified, between two hosts; `devices`: with a host of the kernel;
//! - `described`: requests and answers compared with the published description;
//! - `flip`: a relay that changes one byte of an answer;
//! - `hostile`: requests that are rejected under traffic;
//! - `own`: paths outside the Open Traffic Generator model;
//! - `page`: the page, in a headless Chromium;
//! - `sent`: packet counts of many flows, across a link down, and of a server that is stopped;
//! - `many`, `methods`, `replay`, `sequence`: many streams, measurements, recordings, streams in sequence;
//! - `stage`: a server on both ends of a link, and raw requests.

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
