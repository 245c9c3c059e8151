//! The device, shared by both ends of frames.

use super::NAP;
use crate::contract::{Device, DeviceError, Route, Ticket};
use crate::list::Guard;
use linerate_transport::frames::{Batch, RemoteMemory};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Clone)]
pub(super) struct SharedDevice(Arc<Mutex<State>>);

pub(super) struct State {
    pub device: Box<dyn Device>,
    pub guard: Guard,
    pub route: Route,
    /// Blocks not in use.
    pub free: Vec<Batch>,
    /// Tickets of the work that uses blocks.
    pub out: VecDeque<Ticket>,
    /// Owners of the blocks that the device has, in the order of their return, and returned blocks of other owners.
    pub whose: VecDeque<BlockOwner>,
    pub back: VecDeque<Batch>,
    pub failed: Option<DeviceError>,
}

/// Owner of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockOwner {
    Ours,
    Lent,
}

impl SharedDevice {
    pub(super) fn new(state: State) -> SharedDevice {
        SharedDevice(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a device")
    }
}

impl State {
    /// Queues the placement of a block, unless the device has failed.
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
        match self.place(batch, BlockOwner::Ours) {
            Ok(ticket) => self.out.push_back(ticket),
            Err(error) => self.failed = Some(error),
        }
    }

    pub(super) fn place(&mut self, batch: Batch, whose: BlockOwner) -> Result<Ticket, DeviceError> {
        self.whose.push_back(whose);
        self.device.place(batch, self.route)
    }

    /// Sorts the batches that the device returns.
    pub(super) fn collect(&mut self) {
        while let Some(batch) = self.device.returned() {
            match self.whose.pop_front() {
                Some(BlockOwner::Lent) => self.back.push_back(batch),
                _ => self.free.push(batch),
            }
        }
    }

    /// Returns an empty block, once one is free.
    fn free(&mut self) -> Batch {
        loop {
            self.collect();
            if let Some(batch) = self.free.pop() {
                let mut list = batch.list;
                list.clear();
                return Batch { list, used: 0, ..batch };
            }
            // No block is left only if the device has lost them.
            let Some(ticket) = self.out.pop_front() else { return Batch::default() };
            if let Err(error) = self.device.wait(ticket) {
                self.failed.get_or_insert(error);
                // Its batches are returned, possibly later.
                thread::sleep(NAP);
            }
        }
    }
}

impl RemoteMemory for SharedDevice {
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
