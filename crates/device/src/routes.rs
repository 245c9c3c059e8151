//! Determines the fastest route to a device by a short measurement.

use crate::contract::{Device, DeviceError, Route, Shape};
use crate::form::Form;
use linerate_burst::pool::OwnedBytes;
use linerate_transport::copy::Kernel;
use linerate_transport::frames::{Batch, Entry};

/// Measured rate of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteRate {
    /// The route.
    pub route: Route,
    /// Payload in bytes per second.
    pub rate: u64,
}

/// Bytes per block, and the duration of a trial in nanoseconds.
const BLOCK: usize = 1 << 20;
const SPAN: u64 = 20_000_000;
/// Number of blocks in flight.
const BLOCKS: usize = 2;
/// Threshold for another route, in percent of [`Route::Copy`]: for that one CPU and device work in parallel in a run,
/// but not here.
const BETTER: u64 = 110;

/// Measures the routes to a device, for segments of `segment` bytes, in about 60 ms; returns them fastest first.
/// `is_straight`: a port reads payload directly into frames of the host. `clock` returns nanoseconds. Allocates the
/// device's frames: call it before any other use of the device.
///
/// # Errors
/// If the device fails.
pub fn measure(
    device: &mut dyn Device,
    frame: usize,
    segment: usize,
    is_straight: bool,
    clock: &dyn Fn() -> u64,
) -> Result<Vec<RouteRate>, DeviceError> {
    let bytes = BLOCK.min(frame).max(1);
    device.allocate(Shape { frames: 1, bytes, form: Form::Raw, granule: 4096 })?;
    let source = vec![1; bytes];
    let mut trial = Trial { segment: segment.clamp(1, bytes), is_straight, source, sent: 0 };
    let mut rates = Vec::new();
    for route in Route::ALL {
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            blocks.push(device.block(bytes)?);
        }
        // A first run, without its start-up costs in the result.
        trial.run(device, route, &mut blocks, &|| u64::MAX)?;
        let began = clock();
        trial.sent = 0;
        trial.run(device, route, &mut blocks, &|| clock().saturating_sub(began))?;
        let nanos = clock().saturating_sub(began).max(1);
        rates.push(RouteRate { route, rate: (u128::from(trial.sent) * 1_000_000_000 / u128::from(nanos)) as u64 });
    }
    rates.sort_by_key(|one| std::cmp::Reverse(one.rate));
    Ok(rates)
}

/// Returns the route to use.
pub fn choose(rates: &[RouteRate]) -> Route {
    let copy = rates.iter().find(|one| one.route == Route::Copy).map_or(0, |one| one.rate);
    match rates.first() {
        Some(first) if first.rate.saturating_mul(100) > copy.saturating_mul(BETTER) => first.route,
        _ => Route::Copy,
    }
}

struct Trial {
    segment: usize,
    is_straight: bool,
    source: Vec<u8>,
    sent: u64,
}

impl Trial {
    /// Sends blocks until the time is over; at least two.
    fn run(
        &mut self,
        device: &mut dyn Device,
        route: Route,
        blocks: &mut Vec<OwnedBytes>,
        elapsed: &dyn Fn() -> u64,
    ) -> Result<(), DeviceError> {
        let mut last = None;
        for round in 0.. {
            let Some(mut block) = blocks.pop() else { break };
            if route != Route::Copy || !self.is_straight {
                Kernel::default().copy_all(block.bytes_mut(), self.source.chunks(self.segment));
            }
            let ticket = match route {
                Route::Copy => {
                    let ticket = device.copy(block.bytes(), 0, 0)?;
                    blocks.push(block);
                    ticket
                }
                Route::Place | Route::Gather => {
                    let used = block.len();
                    device.place(Batch { block, used, list: self.list() }, route)?
                }
            };
            self.sent += self.source.len() as u64;
            if blocks.is_empty() {
                device.wait(last.unwrap_or(ticket))?;
                blocks.extend(std::iter::from_fn(|| device.returned()).map(|batch| batch.block));
            }
            last = Some(ticket);
            if round > 0 && elapsed() >= SPAN {
                break;
            }
        }
        device.wait(last.unwrap_or_default())?;
        blocks.extend(std::iter::from_fn(|| device.returned()).map(|batch| batch.block));
        Ok(())
    }

    /// Places each segment elsewhere than in the block, so that none can be merged.
    fn list(&self) -> Vec<Entry> {
        let starts = (0..self.source.len()).step_by(self.segment);
        let entry = |start: usize| {
            let len = self.segment.min(self.source.len() - start);
            Entry { at: (self.source.len() - start - len) as u64, from: start as u32, len: len as u32, frame: 0 }
        };
        starts.map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Cpu, CpuConfig};
    use std::time::Instant;

    #[test]
    fn all_routes_are_measured_and_the_fastest_is_used() {
        let began = Instant::now();
        let mut device = Cpu::open(CpuConfig::default());
        let rates = measure(&mut device, 300_000, 1448, false, &|| began.elapsed().as_nanos() as u64).unwrap();
        assert!(rates.len() == 3 && rates.is_sorted_by(|one, other| one.rate >= other.rate), "{rates:?}");
        assert!(rates.iter().all(|one| one.rate > 0), "{rates:?}");
        let rate = |route, rate| RouteRate { route, rate };
        assert_eq!(choose(&[rate(Route::Gather, 109), rate(Route::Copy, 100)]), Route::Copy);
        assert_eq!(choose(&[rate(Route::Place, 111), rate(Route::Copy, 100)]), Route::Place);
        assert_eq!(choose(&[rate(Route::Copy, 100), rate(Route::Place, 99)]), Route::Copy);
        assert_eq!(choose(&[]), Route::Copy);
    }

    #[test]
    fn device_failure_is_an_error() {
        let config = CpuConfig { fail_one_in: Some(1), ..CpuConfig::default() };
        let mut device = Cpu::open(config);
        assert!(measure(&mut device, 300_000, 1448, true, &|| 0).is_err());
    }
}
