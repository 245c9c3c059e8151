//! A device with a faulty path to it.

use linerate_burst::pool::OwnedBytes;
use linerate_device::{Device, DeviceError, DeviceInfo, ExamineResult, FrameLocation, Route, Shape, Ticket};
use linerate_transport::frames::Batch;
use std::ops::Range;

/// A device that damages a byte of its data, or omits an entry of a list.
pub(super) struct FaultyDevice {
    pub device: Box<dyn Device>,
    pub leaves_out: bool,
}

impl Device for FaultyDevice {
    fn facts(&self) -> &DeviceInfo {
        self.device.facts()
    }

    fn allocate(&mut self, shape: Shape) -> Result<(), DeviceError> {
        self.device.allocate(shape)
    }

    fn block(&mut self, bytes: usize) -> Result<OwnedBytes, DeviceError> {
        self.device.block(bytes)
    }

    fn register(&mut self, piece: OwnedBytes) -> Result<OwnedBytes, DeviceError> {
        self.device.register(piece)
    }

    fn clear(&mut self, frame: u32, range: Range<usize>) -> Result<Ticket, DeviceError> {
        self.device.clear(frame, range)
    }

    fn copy(&mut self, from: &[u8], frame: u32, at: usize) -> Result<Ticket, DeviceError> {
        let mut bytes = from.to_vec();
        bytes.iter_mut().skip(20).take(1).for_each(|byte| *byte ^= 4);
        self.device.copy(&bytes, frame, at)
    }

    fn mark(&mut self, frame: u32, ranges: &[Range<u64>]) -> Result<Ticket, DeviceError> {
        self.device.mark(frame, if self.leaves_out { &[] } else { ranges })
    }

    fn place(&mut self, mut batch: Batch, route: Route) -> Result<Ticket, DeviceError> {
        if self.leaves_out {
            batch.list.clear();
        }
        batch.block.bytes_mut()[20] ^= 4;
        self.device.place(batch, route)
    }

    fn forget(&mut self, frame: u32) -> Result<Ticket, DeviceError> {
        self.device.forget(frame)
    }

    fn examine(&mut self, frame: u32, len: usize) -> Result<Ticket, DeviceError> {
        self.device.examine(frame, len)
    }

    fn examined(&mut self) -> Option<ExamineResult> {
        self.device.examined()
    }

    fn fetch(&mut self, frame: u32, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.device.fetch(frame, at, to)
    }

    fn reached(&mut self) -> Result<Ticket, DeviceError> {
        self.device.reached()
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), DeviceError> {
        self.device.wait(ticket)
    }

    fn returned(&mut self) -> Option<Batch> {
        self.device.returned()
    }

    fn export(&mut self, frame: u32) -> Result<FrameLocation, DeviceError> {
        self.device.export(frame)
    }
}
