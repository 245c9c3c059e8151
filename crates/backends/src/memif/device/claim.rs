//! The ends that this process has open, and the directions in use.

use super::super::config::MemifConfig;
use super::super::shared_listener::SharedListener;
use super::{Control, Device, State};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

/// Ends that this process has open.
static DEVICES: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

const CONFLICT: &str = "another id of its socket is open with other users=, rings-in= or rings-out=; set the same, \
     since both apply before a client names its id";

/// Claims a direction of an end until its last queue is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    pub device: Arc<Device>,
    outward: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.device.used[usize::from(self.outward)].store(false, Ordering::Relaxed);
    }
}

impl Device {
    /// Returns the end that is already open, or opens a new one.
    pub(crate) fn open(config: MemifConfig) -> Result<Arc<Device>, String> {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        if let Some(device) = devices.iter().filter_map(Weak::upgrade).find(|device| config.is_end_of(&device.config)) {
            return match config.is_satisfied_by(&device.config) {
                true => Ok(device),
                false => {
                    Err("already open with other options; give both the same, with rings-in= and rings-out=".into())
                }
            };
        }
        let listener = match devices.iter().filter_map(Weak::upgrade).find(|device| config.is_behind(&device.config)) {
            Some(other) if !config.can_share_socket(&other.config) => {
                return Err(CONFLICT.into());
            }
            Some(other) => other.listener.clone(),
            None if config.is_server => Some(Arc::new(SharedListener::new(&config)?)),
            None => None,
        };
        let bell =
            |count| eventfd(count, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| error.to_string());
        let device = Arc::new(Device {
            listener,
            never: bell(0)?,
            ready: bell(1)?,
            own: geteuid().as_raw(),
            changes: AtomicU64::new(0),
            control: Mutex::new(Control {
                state: State::Disconnected,
                next: Instant::now(),
                has_stood: false,
                refusal: None,
                reasons: BTreeMap::new(),
                has_missed: false,
                news: 0,
            }),
            used: Default::default(),
            config,
        });
        device.listener.iter().for_each(|listener| listener.add(&device));
        // A server accepts clients once frames are asked for: other ids of its socket may be opened before.
        if device.listener.is_none() {
            device.step();
        }
        devices.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Claims a direction with all its rings; `None` if it is in use.
    pub(crate) fn claim(self: &Arc<Self>, outward: bool) -> Option<Arc<Claim>> {
        let is_free = !self.used[usize::from(outward)].swap(true, Ordering::Relaxed);
        is_free.then(|| Arc::new(Claim { device: Arc::clone(self), outward }))
    }

    /// Returns the ends that are open in this process.
    pub(crate) fn all() -> Vec<Arc<Device>> {
        DEVICES.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}
