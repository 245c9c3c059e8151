//! The reader of a measurement: this program once more, as another process.

use crate::measure::Rounds;
use anyhow::{Context, bail};
use linerate_burst::Nanos;
use linerate_cli::view::terminal::show_line;
use linerate_engine::clock;
use linerate_share::{Attach, End};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};

/// What a reader saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub frames: u64,
    /// From the first frame to the end of the last.
    pub seconds: f64,
    /// Of everything touched, so that it is.
    pub sum: u64,
    /// From the time of a frame until it was seen.
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Reading {
    pub(super) fn add_to(self, rounds: &mut Rounds) {
        rounds.add(self.frames, self.seconds);
    }
}

/// A reader at work.
pub(super) struct Child(std::process::Child);

impl Child {
    /// Starts a reader of this ring, on a processor of its own where one is named.
    pub(super) fn start(ring: &str, cpu: Option<usize>, sleeps: bool) -> anyhow::Result<Child> {
        let mut command = Command::new(std::env::current_exe().context("this program cannot be found")?);
        command.args(["burst", "--burst-reader", ring]);
        if sleeps {
            command.arg("--burst-sleep");
        }
        if let Some(cpu) = cpu {
            command.args(["--burst-cpu", &cpu.to_string()]);
        }
        Ok(Child(command.stdout(Stdio::piped()).spawn().context("a reader cannot be started")?))
    }

    /// Waits for its end.
    pub(super) fn end(self) -> anyhow::Result<Reading> {
        let output = self.0.wait_with_output()?;
        if !output.status.success() {
            bail!("the reader failed: {}", output.status);
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Reads a ring to its end, touching every frame; prints what was seen.
pub(crate) fn read(ring: &str, cpu: Option<usize>, sleeps: bool) -> anyhow::Result<()> {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    let mut reader = Attach { lossless: true, name: "bench".into(), ..Attach::default() }.to(ring)?;
    let mut reading = Reading::default();
    let mut delays = Delays::default();
    let (mut first, mut last) = (None, Nanos::ZERO);
    loop {
        let burst = reader.fill(1024);
        let frames = burst.len();
        if frames == 0 {
            match reader.ended() {
                Some(End::InOrder) => break,
                Some(end) => bail!("the ring ended: {end:?}"),
                None if sleeps => {
                    let mut wake = [PollFd::from_borrowed_fd(reader.wake(), PollFlags::IN)];
                    poll(&mut wake, None)?;
                }
                None => std::hint::spin_loop(),
            }
            continue;
        }
        let now = clock::now();
        first.get_or_insert(now);
        delays.add(now.0.saturating_sub(burst.descs()[0].time.0), frames as u64);
        for (desc, frame) in burst.iter() {
            let head = frame.first_chunk().map_or(0, |head| u64::from_ne_bytes(*head));
            reading.sum = reading.sum.wrapping_add(u64::from(desc.hash)).wrapping_add(head);
        }
        reader.consume(frames);
        reading.frames += frames as u64;
        last = clock::now();
    }
    reading.seconds = last.since(first.unwrap_or(last)).as_secs_f64();
    (reading.p50_ns, reading.p90_ns) = (delays.at(0.5), delays.at(0.9));
    (reading.p99_ns, reading.max_ns) = (delays.at(0.99), delays.max);
    show_line(&reading)?;
    Ok(())
}

/// Delays by 100 ns, up to a millisecond.
struct Delays {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

const BUCKET: u64 = 100;
const BUCKETS: usize = 10_000;

impl Default for Delays {
    fn default() -> Self {
        Delays { buckets: vec![0; BUCKETS], count: 0, max: 0 }
    }
}

impl Delays {
    fn add(&mut self, nanos: u64, frames: u64) {
        self.buckets[((nanos / BUCKET) as usize).min(BUCKETS - 1)] += frames;
        self.count += frames;
        self.max = self.max.max(nanos);
    }

    /// The delay that this part of all frames did not exceed.
    fn at(&self, part: f64) -> u64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|frames| {
            seen += frames;
            seen >= wanted
        });
        bucket.map_or(self.max, |bucket| (bucket as u64 + 1) * BUCKET)
    }
}
