//! Threads and atomics for [`helper`](crate::helper); `crates/burst/loom` replaces them by loom's.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::AtomicU32;
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::thread::{Thread, current, park, yield_now};

use std::cell::UnsafeCell;

/// Number of looks for work before the worker sleeps: about 50 us.
pub(crate) const LOOKS: u32 = 2000;
/// Number of looks for the end before the caller yields its processor, which the worker may be waiting for.
pub(crate) const PATIENCE: u32 = 10_000;

/// Memory that one side writes and the other reads, by agreement; loom's version verifies the agreement.
pub(crate) struct HandoffCell<T>(UnsafeCell<T>);

impl<T> HandoffCell<T> {
    pub(crate) fn new(value: T) -> Self {
        HandoffCell(UnsafeCell::new(value))
    }

    /// Passes a pointer for reading.
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Passes a pointer for writing.
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
