//! The program on networks of its own.
