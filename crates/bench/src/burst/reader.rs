//! The reader of a measurement: this program in another process.

use crate::harness::Sample;
use anyhow::{Context, bail};
use linerate_burst::Nanos;
use linerate_cli::view::terminal::show_line;
use linerate_engine::clock;
use linerate_generate::Delays;
use linerate_share::{AttachOptions, End};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::sched_setaffinity;
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest delay of a packet that is not a prepared one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Result of a reader.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReaderResult {
    pub frames: u64,
    /// From the first frame to the end of the last.
    pub seconds: f64,
    /// Sum of all bytes read, so that they are read.
    pub sum: u64,
    /// Median, 99th percentile and maximum delay from the time of a packet until it is read, in microseconds.
    pub delays: [Option<f64>; 3],
}

impl ReaderResult {
    pub(super) fn sample(&self) -> Sample {
        Sample { delays: self.delays, ..Sample::new(self.frames, self.seconds) }
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
    pub(super) fn end(self) -> anyhow::Result<ReaderResult> {
        let output = self.0.wait_with_output()?;
        if !output.status.success() {
            bail!("the reader failed: {}", output.status);
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Reads a ring to its end, touching every packet; prints the result.
pub(crate) fn read(ring: &str, cpu: Option<usize>, sleeps: bool) -> anyhow::Result<()> {
    if let Some(cpu) = cpu {
        sched_setaffinity(None, &crate::machine::one_cpu(cpu))?;
    }
    let mut reader = AttachOptions { lossless: true, name: "bench".into(), ..AttachOptions::default() }.to(ring)?;
    let mut reading = ReaderResult::default();
    let mut delays = Delays::new();
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
        // Prepared packets have a time of the past, and no delay.
        if now.since(burst.descs()[0].time) < PATIENCE {
            burst.descs().iter().for_each(|desc| delays.add(now.0.saturating_sub(desc.time.0)));
        }
        for (desc, frame) in burst.iter() {
            let head = frame.first_chunk().map_or(0, |head| u64::from_ne_bytes(*head));
            reading.sum = reading.sum.wrapping_add(u64::from(desc.hash)).wrapping_add(head);
        }
        reader.consume(frames);
        reading.frames += frames as u64;
        last = clock::now();
    }
    reading.seconds = last.since(first.unwrap_or(last)).as_secs_f64();
    let micros = |delay: Duration| Some(delay.as_secs_f64() * 1e6);
    if delays.count() > 0 {
        reading.delays = [micros(delays.quantile(0.5)), micros(delays.quantile(0.99)), micros(delays.max())];
    }
    show_line(&reading)?;
    Ok(())
}
