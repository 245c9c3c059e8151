//! DPDK's own program as a peer, measured by the CPU time of its worker thread.

use crate::harness::Sample;
use crate::machine::task_cpu;
use crate::peers::missing;
use anyhow::Context;
use std::io::ErrorKind;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running testpmd; it ends with this value.
pub(super) struct Testpmd {
    child: Child,
    input: Option<ChildStdin>,
}

/// Returns true if it is installed; reports once that it is not.
pub(super) fn is_installed() -> bool {
    let is_installed = Command::new("dpdk-testpmd").arg("--version").output().is_ok();
    if !is_installed {
        missing("dpdk-testpmd", "apt install dpdk");
    }
    is_installed
}

impl Testpmd {
    /// Starts it with these devices and options on this processor.
    pub(crate) fn start(devices: &[String], options: &[&str], cpu: usize) -> anyhow::Result<Testpmd> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("--file-prefix=linerate-bench-{}-{number}", std::process::id());
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf", &prefix]);
        command.args(["--lcores", &format!("0@{cpu},1@{cpu}")]);
        devices.iter().for_each(|device| _ = command.args(["--vdev", device]));
        command.args(["--", "--total-num-mbufs=8192", "--no-mlockall"]).args(options);
        // It exits at the end of its input, so that it does not outlive this process.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => anyhow::bail!("dpdk-testpmd: not installed"),
            started => started.context("dpdk-testpmd")?,
        };
        let input = child.stdin.take();
        Ok(Testpmd { child, input })
    }

    /// Waits until its worker has used this CPU time.
    pub(crate) fn work(&self, span: Duration) -> anyhow::Result<()> {
        let (began, before) = (Instant::now(), self.used());
        while self.used() < before + span {
            anyhow::ensure!(began.elapsed() < PATIENCE + 4 * span, "dpdk-testpmd does not work");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Lets its worker run for this CPU time, and ends it: packets that it received, by that time.
    pub(crate) fn measure(self, span: Duration) -> anyhow::Result<Sample> {
        self.work(span)?;
        let used = self.used();
        Ok(Sample::cpu(self.end()?, used))
    }

    /// CPU time of its worker.
    pub(crate) fn used(&self) -> Duration {
        task_cpu(self.child.id(), "worker")
    }

    /// Ends it; returns the number of packets that it received.
    pub(crate) fn end(mut self) -> anyhow::Result<u64> {
        drop(self.input.take());
        let mut text = String::new();
        let mut output = self.child.stdout.take().context("its output")?;
        std::io::Read::read_to_string(&mut output, &mut text)?;
        let received = text.rsplit("RX-packets:").next().and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        received.with_context(|| format!("dpdk-testpmd printed no RX-packets: {text}"))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
