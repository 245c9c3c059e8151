//! The devices under test.

use linerate_device::Device;
use linerate_device::cpu::{Cpu, CpuConfig};
use std::time::Duration;

/// Returns a CPU device: prompt or slow, depending on the seed.
pub(crate) fn cpu(seed: u64) -> Box<dyn Device> {
    let delay = if seed.is_multiple_of(4) { Duration::from_micros(200) } else { Duration::ZERO };
    Box::new(Cpu::open(CpuConfig { seed, delay, ..CpuConfig::default() }))
}

/// Returns a CPU device, and a GPU if there is one.
pub(crate) fn devices(seed: u64) -> Vec<Box<dyn Device>> {
    #[allow(unused_mut)]
    let mut devices = vec![cpu(seed)];
    #[cfg(feature = "cuda")]
    match linerate_device::cuda::Cuda::open(0) {
        Ok(cuda) => devices.push(Box::new(cuda)),
        Err(error) => print_once(&format!("NOT TESTED on a GPU: {error}")),
    }
    devices
}

/// Prints a note once per run.
#[cfg(feature = "cuda")]
fn print_once(what: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| eprintln!("{what}"));
}
