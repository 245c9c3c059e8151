//! The HTTP server: driven by the published client, and by unauthorised and malformed requests.
//!
//! - `clients`: snappi, unmodified, between two hosts; `devices`: with a host of the kernel;
//! - `openapi`: requests and answers compared with the published description;
//! - `relay`: a relay that changes one byte of an answer;
//! - `hostile`: requests that are rejected under traffic;
//! - `native_api`: paths outside the Open Traffic Generator model;
//! - `page`: the page, in a headless Chromium;
//! - `flow_counts`: packet counts of many flows, across a link down, and of a server that is stopped;
//! - `many_streams`, `methods`, `replay`, `sequence`: many streams, measurements, recordings, streams in sequence;
//! - `server`: a server on both ends of a link, and raw requests.

mod clients;
mod devices;
mod flow_counts;
mod hostile;
mod many_streams;
mod methods;
mod native_api;
mod openapi;
mod page;
mod relay;
mod replay;
mod sequence;
mod server;
