//! The port contract, the registry of backends, and the backends
