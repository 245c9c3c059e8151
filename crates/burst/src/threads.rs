//! What [`helper`](crate::helper) is made of; `crates/burst/loom` has loom's in its place.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::AtomicU32;
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::thread::{Thread, current, park, yield_now};

use std::cell::UnsafeCell;

/// How often the worker looks for work before it sleeps: some 50 us.
pub(crate) const LOOKS: u32 = 2000;
/// How often the caller looks for the end before it lets others run on its processor: the worker may be one of them.
pub(crate) const PATIENCE: u32 = 10_000;

/// Memory that one side writes and the other reads, as they have agreed; loom's sees whether they keep to that.
pub(crate) struct Lent<T>(UnsafeCell<T>);

impl<T> Lent<T> {
    pub(crate) fn new(value: T) -> Self {
        Lent(UnsafeCell::new(value))
    }

    /// To be read.
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// To be written.
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
