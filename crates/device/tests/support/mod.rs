//! The devices that there are.

use linerate_device::Device;
use linerate_device::cpu::{Cpu, CpuConfig};
use std::time::Duration;

/// A device that is a thread: prompt or late, as the seed says.
pub(crate) fn cpu(seed: u64) -> Box<dyn Device> {
    let delay = if seed.is_multiple_of(4) { Duration::from_micros(200) } else { Duration::ZERO };
    Box::new(Cpu::open(CpuConfig { seed, delay, ..CpuConfig::default() }))
}

/// That one, and a GPU where there is one.
pub(crate) fn devices(seed: u64) -> Vec<Box<dyn Device>> {
    #[allow(unused_mut)]
    let mut devices = vec![cpu(seed)];
    #[cfg(feature = "cuda")]
    match linerate_device::cuda::Cuda::open(0) {
        Ok(cuda) => devices.push(Box::new(cuda)),
        Err(error) => say(&format!("NOT TRIED on a GPU: {error}")),
    }
    devices
}

/// Once in a run.
#[cfg(feature = "cuda")]
fn say(what: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| eprintln!("{what}"));
}
