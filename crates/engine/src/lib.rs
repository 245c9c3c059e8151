//! The only threads and the only clock: wiring ports to sinks
