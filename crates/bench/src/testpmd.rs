//! DPDK's own program, as a peer that is measured: where it is installed, and only by what its worker thread uses of a processor.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::io::ErrorKind;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Whoever waits for it does so for no longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// One that runs; it ends with this value.
pub(super) struct Testpmd {
    child: Child,
    input: Option<ChildStdin>,
}

/// The processors that may be used, the first one twice where there is no second.
pub(super) fn two_cpus() -> [usize; 2] {
    let all = sched_getaffinity(None).unwrap_or_default();
    let mut there = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let first = there.next().unwrap_or(0);
    [first, there.next().unwrap_or(first)]
}

impl Testpmd {
    /// With these devices, doing that on this processor; none where it is not installed.
    pub(crate) fn start(devices: &[String], does: &[&str], cpu: usize) -> anyhow::Result<Option<Testpmd>> {
        static STARTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let prefix = format!("--file-prefix=linerate-bench-{}-{number}", std::process::id());
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf", &prefix]);
        command.args(["--lcores", &format!("0@{cpu},1@{cpu}")]);
        devices.iter().for_each(|device| _ = command.args(["--vdev", device]));
        command.args(["--", "--total-num-mbufs=8192", "--no-mlockall"]).args(does);
        // It ends when it reads the end of its input: so it does not outlive this process, however that ends.
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = match started {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            started => started.context("dpdk-testpmd")?,
        };
        let input = child.stdin.take();
        Ok(Some(Testpmd { child, input }))
    }

    /// Lets its worker work for so long.
    pub(crate) fn work(&self, span: Duration) -> anyhow::Result<()> {
        let (began, before) = (Instant::now(), self.used());
        while self.used() < before + span {
            anyhow::ensure!(began.elapsed() < PATIENCE + 4 * span, "dpdk-testpmd does not work");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// What its worker has used of a processor.
    pub(crate) fn used(&self) -> Duration {
        thread_time(self.child.id(), "worker")
    }

    /// Ends it: frames that it has received.
    pub(crate) fn end(mut self) -> anyhow::Result<u64> {
        drop(self.input.take());
        let mut said = String::new();
        let mut output = self.child.stdout.take().context("its output")?;
        std::io::Read::read_to_string(&mut output, &mut said)?;
        let received = said.rsplit("RX-packets:").next().and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        received.with_context(|| format!("testpmd said no RX-packets: {said}"))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of the threads of a process whose name has this in it, by the scheduler.
pub(super) fn thread_time(pid: u32, name: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| -> Option<u64> {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        let is_meant = read("comm")?.contains(name);
        read("schedstat")?.split_whitespace().next()?.parse().ok().filter(|_| is_meant)
    };
    Duration::from_nanos(tasks.filter_map(of).sum())
}
