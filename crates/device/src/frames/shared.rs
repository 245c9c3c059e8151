//! The device, as both ends of frames have it.

use super::NAP;
use crate::contract::{Device, DeviceError, Route, Ticket};
use crate::list::Guard;
use linerate_receive::frames::{Batch, Beyond};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The device, for both ends.
#[derive(Clone)]
pub(super) struct Both(Arc<Mutex<State>>);

pub(super) struct State {
    pub device: Box<dyn Device>,
    pub guard: Guard,
    pub route: Route,
    /// Blocks that nobody has.
    pub free: Vec<Batch>,
    /// Work that blocks are out for.
    pub out: VecDeque<Ticket>,
    /// Whose blocks the device has, in the order in which they come back, and those of others that came back.
    pub whose: VecDeque<Whose>,
    pub back: VecDeque<Batch>,
    pub failed: Option<DeviceError>,
}

/// Whose a block is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Ours,
    Lent,
}

impl Both {
    pub(super) fn new(state: State) -> Both {
        Both(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Both {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a device")
    }
}

impl State {
    /// Has a block placed, unless the device has failed.
    fn send(&mut self, batch: Batch) {
        let checked = match &self.failed {
            Some(_) => return self.free.push(batch),
            None => self.guard.take(&batch.list, batch.used),
        };
        if let Err(bad) = checked {
            self.free.push(batch);
            self.failed = Some(bad.into());
            return;
        }
        match self.place(batch, Whose::Ours) {
            Ok(ticket) => self.out.push_back(ticket),
            Err(error) => self.failed = Some(error),
        }
    }

    pub(super) fn place(&mut self, batch: Batch, whose: Whose) -> Result<Ticket, DeviceError> {
        self.whose.push_back(whose);
        self.device.place(batch, self.route)
    }

    /// Sorts what the device needs no more.
    pub(super) fn collect(&mut self) {
        while let Some(batch) = self.device.returned() {
            match self.whose.pop_front() {
                Some(Whose::Lent) => self.back.push_back(batch),
                _ => self.free.push(batch),
            }
        }
    }

    /// An empty block, once there is one.
    fn free(&mut self) -> Batch {
        loop {
            self.collect();
            if let Some(batch) = self.free.pop() {
                let mut list = batch.list;
                list.clear();
                return Batch { list, used: 0, ..batch };
            }
            // None is left only if the device has lost them.
            let Some(ticket) = self.out.pop_front() else { return Batch::default() };
            if let Err(error) = self.device.wait(ticket) {
                self.failed.get_or_insert(error);
                // What it was handed comes back, if late.
                thread::sleep(NAP);
            }
        }
    }
}

impl Beyond for Both {
    fn exchange(&mut self, full: Batch) -> Batch {
        let mut state = self.lock();
        if !full.block.is_empty() {
            state.send(full);
        }
        let batch = state.free();
        let done = state.device.reached().unwrap_or_default();
        while state.out.front().is_some_and(|ticket| *ticket <= done) {
            state.out.pop_front();
        }
        batch
    }

    fn forget(&mut self, frame: u32) {
        let mut state = self.lock();
        state.guard.release(frame);
        if let Err(error) = state.device.forget(frame) {
            state.failed.get_or_insert(error);
        }
    }
}
