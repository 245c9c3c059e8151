//! A device opened by the plugin for DPDK: its queues, and the memory that frames are received into.
//!
//! Unsafe because the plugin is C, and writes into memory of ours.
#![allow(unsafe_code)]

use super::dpdk_plugin::{
    ClassicArgs, Counter, Functions, Info, NAME, OpenArgs, Plugin, Port, PutArgs, Stamps, Stats, TakeArgs, name, said,
};
use linerate_burst::{Burst, Desc, MAX_FRAME, MisplacedDesc, Nanos, TAIL};
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Options to open a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenParams<'a> {
    pub device: &'a str,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub depth: u32,
    pub mtu: u32,
    pub promiscuous: bool,
    /// True if buffers are reused in turn, as in the ring of a card.
    pub fifo: bool,
    pub stamps: Option<Stamps>,
}

#[derive(Debug)]
pub(crate) struct Device {
    functions: Functions,
    port: NonNull<Port>,
    pub info: Info,
    /// Queues in use: receiving, sending.
    used: [Vec<AtomicBool>; 2],
}

// SAFETY: the plugin lets different threads use different queues and read counters; each queue belongs to one
// `PluginRxQueue` or `PluginTxQueue`.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    pub(crate) fn open(plugin: &Plugin, open: &OpenParams<'_>) -> Result<Arc<Device>, String> {
        let device = CString::new(open.device).map_err(|_| "invalid device name: contains NUL".to_owned())?;
        let asked = OpenArgs {
            device: device.as_ptr(),
            rx_queues: open.rx_queues,
            tx_queues: open.tx_queues,
            depth: open.depth,
            mtu: open.mtu,
            promiscuous: open.promiscuous.into(),
            fifo: open.fifo.into(),
            // The best timestamps of the device.
            stamps: open.stamps.map_or(u32::MAX, |stamps| stamps as u32),
        };
        let mut port = std::ptr::null_mut();
        let mut info =
            Info { rx_queues: 0, tx_queues: 0, longest: 0, stamps: 0, promiscuous: 0, node: -1, driver: [0; NAME] };
        // SAFETY: memory that it reads and writes lives until it returns, and the buffer has room for a reason.
        said(|why| unsafe { (plugin.functions.open)(&raw const asked, &raw mut port, &raw mut info, why) })?;
        let port = NonNull::new(port).ok_or("the plugin opened nothing")?;
        let used = [info.rx_queues, info.tx_queues].map(|count| (0..count).map(|_| AtomicBool::new(false)).collect());
        Ok(Arc::new(Device { functions: plugin.functions, port, info, used }))
    }

    /// Opens a receive queue, unless it is in use or does not exist.
    pub(crate) fn receiving(self: &Arc<Self>, queue: u16) -> Option<PluginRxQueue> {
        let is_free = !self.used[0].get(usize::from(queue))?.swap(true, Ordering::AcqRel);
        let area = Area::new(COPIED, SHOWN);
        is_free.then(|| PluginRxQueue { device: Arc::clone(self), queue, area, shown: 0, in_place: None })
    }

    /// Opens a send queue, unless it is in use or does not exist.
    pub(crate) fn sending(self: &Arc<Self>, queue: u16) -> Option<PluginTxQueue> {
        let is_free = !self.used[1].get(usize::from(queue))?.swap(true, Ordering::AcqRel);
        is_free.then(|| PluginTxQueue { device: Arc::clone(self), queue })
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: the port is open, and the buffer has room.
        unsafe { (self.functions.stats)(self.port.as_ptr(), &raw mut stats) };
        stats
    }

    /// Returns the driver's own counters.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = vec![Counter { name: [0; NAME], value: 0 }; 1024];
        // SAFETY: the port is open, and the buffer has room for 1024 counters.
        let count = unsafe { (self.functions.counters)(self.port.as_ptr(), counters.as_mut_ptr(), 1024) };
        counters.iter().take(count as usize).map(|counter| (name(&counter.name), counter.value)).collect()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: no queue of it exists any more, and this is its last use.
        unsafe { (self.functions.close)(self.port.as_ptr()) }
    }
}

/// Memory that frames are received into, each at a multiple of 64 bytes.
#[derive(Debug)]
pub(crate) struct Area {
    lines: Vec<Line>,
    descs: Vec<Desc>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
#[expect(dead_code, reason = "they are read as one run of bytes")]
struct Line([u8; 64]);

impl Area {
    /// Allocates room for `bytes` of frames, at least for one of [`MAX_FRAME`], and for `frames` descs.
    pub(crate) fn new(bytes: usize, frames: usize) -> Area {
        let lines = (bytes.max(MAX_FRAME + 64) + TAIL).div_ceil(64);
        Area { lines: vec![Line([0; 64]); lines], descs: vec![Desc::new(Nanos::ZERO, 0, 0); frames] }
    }

    fn burst<'a>(&'a self, descs: &'a [Desc]) -> Result<Burst<'a>, MisplacedDesc> {
        // SAFETY: lines are contiguous bytes without padding, all initialised when they were allocated.
        let bytes = unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast::<u8>(), self.lines.len() * 64) };
        Burst::over(bytes, descs)
    }

    /// Returns the bytes without the tail.
    fn room(&self) -> usize {
        self.lines.len() * 64 - TAIL
    }
}

/// Result of a receive call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveResult {
    pub frames: usize,
    /// Frames read by the plugin for the next call.
    pub waiting: usize,
    pub joined: u64,
    pub tagged: u64,
    pub unstamped: u64,
}

/// Maximum frames shown at a time, and bytes of those that are copied.
const SHOWN: usize = 512;
const COPIED: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct PluginRxQueue {
    device: Arc<Device>,
    queue: u16,
    /// Buffer for frames that cannot stay in place.
    area: Area,
    shown: usize,
    /// Base of the offsets of frames in the queue's own buffers.
    in_place: Option<NonNull<u8>>,
}

// SAFETY: the buffers of a queue belong to its owner.
unsafe impl Send for PluginRxQueue {}

impl PluginRxQueue {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Receives frames, which replace those of the last call.
    pub(crate) fn take(&mut self, snap: u32, now: Nanos) -> ReceiveResult {
        let area = &mut self.area;
        let mut take = TakeArgs {
            room: area.lines.as_mut_ptr().cast(),
            descs: area.descs.as_mut_ptr(),
            bytes: u32::try_from(area.room()).unwrap_or(u32::MAX),
            most: area.descs.len() as u32,
            snap,
            now: now.0,
            frames: 0,
            waiting: 0,
            base: std::ptr::null(),
            joined: 0,
            tagged: 0,
            unstamped: 0,
        };
        // SAFETY: the queue is ours, the area is borrowed for writing, and has the given size.
        unsafe { (self.device.functions.take)(self.device.port.as_ptr(), self.queue, &raw mut take) };
        let TakeArgs { room, base, frames, waiting, joined, tagged, unstamped, .. } = take;
        self.shown = (frames as usize).min(self.area.descs.len());
        self.in_place = NonNull::new(base.cast_mut()).filter(|base| base.as_ptr() != room);
        ReceiveResult { frames: self.shown, waiting: waiting as usize, joined, tagged, unstamped }
    }

    /// Returns a range of the frames that were received last.
    pub(crate) fn burst(&self, range: std::ops::Range<usize>) -> Result<Burst<'_>, MisplacedDesc> {
        let descs = &self.area.descs[..self.shown][range];
        match self.in_place {
            // SAFETY: the plugin has checked that each frame is in a buffer of the queue's memory, followed by the
            // tail, and frees none before the next call that takes, or attaches, for which this borrow must end.
            Some(base) => Ok(unsafe { Burst::from_raw(base.as_ptr(), descs) }),
            None => self.area.burst(descs),
        }
    }

    /// Stops receiving, except for frames that have arrived.
    pub(crate) fn detach(&mut self) {
        // SAFETY: the queue is ours.
        unsafe { (self.device.functions.detach)(self.device.port.as_ptr(), self.queue) }
    }
}

impl Drop for PluginRxQueue {
    fn drop(&mut self) {
        // SAFETY: the queue is ours until the next line.
        unsafe { (self.device.functions.attach)(self.device.port.as_ptr(), self.queue) };
        self.device.used[0][usize::from(self.queue)].store(false, Ordering::Release);
    }
}

/// Result of sending frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendResult {
    pub done: usize,
    pub sent: u64,
    pub bytes: u64,
    pub too_long: u64,
    pub too_short: u64,
}

#[derive(Debug)]
pub(crate) struct PluginTxQueue {
    device: Arc<Device>,
    queue: u16,
}

impl PluginTxQueue {
    /// Hands frames to the driver, from the first on.
    pub(crate) fn put(&mut self, burst: Burst<'_>) -> SendResult {
        let descs = burst.descs();
        let Some(first) = descs.first() else { return SendResult::default() };
        let base = burst.frame(0).as_ptr().wrapping_sub(first.offset as usize);
        let frames = u32::try_from(descs.len()).unwrap_or(u32::MAX);
        let mut put =
            PutArgs { base, descs: descs.as_ptr(), frames, done: 0, sent: 0, bytes: 0, too_long: 0, too_short: 0 };
        // SAFETY: the queue is ours; each frame is at its desc's offset from the base, which a burst guarantees.
        unsafe { (self.device.functions.put)(self.device.port.as_ptr(), self.queue, &raw mut put) };
        let PutArgs { done, sent, bytes, too_long, too_short, .. } = put;
        SendResult { done: (done as usize).min(descs.len()), sent: sent.into(), bytes, too_long, too_short }
    }
}

impl Drop for PluginTxQueue {
    fn drop(&mut self) {
        self.device.used[1][usize::from(self.queue)].store(false, Ordering::Release);
    }
}

/// Variants of the baseline benchmark over several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaselineVariant {
    /// Received and freed.
    Freed,
    /// Merged and copied.
    Copied,
    /// Merged and copied by three threads.
    BySteps,
}

/// Runs the benchmark with queue 0 of each of these devices; returns the number of frames, and the CPU time of each of
/// three threads in nanoseconds, if used.
pub(crate) fn classic(
    devices: &[PluginRxQueue],
    frames: u64,
    area: &mut Area,
    does: BaselineVariant,
) -> (u64, [u64; 3]) {
    let Some(first) = devices.first() else { return (0, [0; 3]) };
    let ports: Vec<NonNull<Port>> = devices.iter().map(|one| one.device.port).collect();
    let mut asked = ClassicArgs {
        ports: ports.as_ptr(),
        count: ports.len() as u32,
        frames,
        base: area.lines.as_mut_ptr().cast(),
        bytes: area.room(),
        descs: area.descs.as_mut_ptr(),
        most: if does == BaselineVariant::Freed { 0 } else { area.descs.len() as u32 },
        threads: (does == BaselineVariant::BySteps).into(),
        cpu_ns: [0; 3],
    };
    // SAFETY: each is borrowed with its queue, and made for queue 0; the area is ours, of the given size; threads end
    // before it does.
    let done = unsafe { (first.device.functions.classic)(&raw mut asked) };
    (done, asked.cpu_ns)
}
