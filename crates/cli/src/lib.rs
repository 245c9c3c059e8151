//! linerate as one library: each crate under its short name.
