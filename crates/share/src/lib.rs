//! Blocks in shared memory: one writer, any number of reading processes.
#![deny(unsafe_code)]
