//! The sending side: creates a ring like `capture --share`, and copies frames into it.
//!
//! Uses one thread. Readers are accepted when the sender flushes, which it does every millisecond and while it waits;
//! the acceptor is polled at most once a millisecond, with a bounded amount of work.

use super::refused;
use linerate_burst::{Burst, CommitState, Count, Desc, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_headers::Link;
use linerate_headers::flow::locate_inner;
use linerate_port::{PortError, Registry, Sent, Spec, TxOptions, TxPort, TxQueue};
use linerate_share::{Acceptor, Access, Options, Writer};
use std::time::Duration;

/// Polling interval of the acceptor.
const ACCEPTOR: Duration = Duration::from_millis(1);

/// Default memory of the ring.
const MEMORY: u64 = 64 << 20;

/// Creates a ring.
pub(super) fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let name = spec.to_string();
    let lossless = match spec.option("lossless") {
        None | Some("no") => false,
        Some("yes") => true,
        Some(other) => return Err(PortError::wrong(&name, format!("lossless={other}: expected yes or no"))),
    };
    let patience = spec.option("timeout").unwrap_or("1");
    let span = patience.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let invalid = || PortError::wrong(&name, format!("timeout={patience}: expected a number of seconds"));
    let patience = span.ok_or_else(invalid)?;
    if spec.queues.is_some() || options.queues > 1 {
        return Err(PortError::wrong(&name, "a ring has only one queue; omit @ and --threads"));
    }
    let shape = Options::default();
    let slots = u32::try_from(spec.number("memory", MEMORY)? / shape.slot_bytes as u64).unwrap_or(u32::MAX);
    let refused = |error| refused(&name, error);
    let access = Access { lossless, ..Access::of_owner(options.owner) };
    let options = Options { slots, ..shape };
    let (mut writer, acceptor) = Writer::create(&spec.target, access, &options, Nanos::ZERO).map_err(refused)?;
    writer.set_patience(Some(patience));
    let interface = Interface::new(spec.target.clone(), LinkType::ETHERNET, StampSource::User);
    writer.set_interfaces(&[interface]).map_err(refused)?;
    let queue = ShmTx {
        name: name.clone(),
        writer: Some(writer),
        acceptor,
        looked: Nanos::ZERO,
        wait: spec.number("wait", 0)? as usize,
        newest: Nanos::ZERO,
        sent: Sent::default(),
        too_long: 0,
        full: 0,
        evict: 0,
    };
    Ok(TxPort { name, queues: vec![Box::new(queue)], monitor: None })
}

struct ShmTx {
    name: String,
    /// `None` after the end.
    writer: Option<Writer>,
    acceptor: Acceptor,
    /// Time of the last poll.
    looked: Nanos,
    /// Number of readers to wait for before the first frame.
    wait: usize,
    /// Latest time of a frame.
    newest: Nanos,
    sent: Sent,
    too_long: u64,
    full: u64,
    evict: u64,
}

/// Outcome of a frame.
enum PushOutcome {
    Copied,
    /// Longer than an empty block.
    TooLong,
    /// Readers hold all blocks.
    Full,
}

impl ShmTx {
    fn take(&mut self, desc: &Desc, frame: &[u8]) -> PushOutcome {
        let located = locate_inner(Link::Ethernet, frame);
        let desc = Desc { interface: 0, l3: located.l3, l4: located.l4, hash: located.hash, ..*desc };
        let Some(writer) = &mut self.writer else { return PushOutcome::Full };
        loop {
            let Some(block) = writer.block() else { return PushOutcome::Full };
            if block.push(&desc, frame) {
                self.newest = self.newest.max(desc.time);
                return PushOutcome::Copied;
            }
            if block.is_empty() {
                return PushOutcome::TooLong;
            }
            writer.commit(&committed(self.newest));
            writer.close_block();
        }
    }
}

fn committed(newest: Nanos) -> CommitState {
    CommitState { last_time: newest, horizon: newest, ..CommitState::default() }
}

impl TxQueue for ShmTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        if self.wait > 0 {
            return Ok(0);
        }
        let mut done = 0;
        for (desc, frame) in burst.iter() {
            match self.take(desc, frame) {
                PushOutcome::Copied => {
                    self.sent.frames += 1;
                    self.sent.bytes += u64::from(desc.captured);
                }
                PushOutcome::TooLong => self.too_long += 1,
                PushOutcome::Full => {
                    self.full += 1;
                    break;
                }
            }
            done += 1;
        }
        if let Some(writer) = &mut self.writer {
            writer.commit(&committed(self.newest));
        }
        Ok(done)
    }

    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        if let Some(writer) = &mut self.writer {
            if now.since(self.looked) >= ACCEPTOR || now < self.looked {
                self.looked = now;
                self.acceptor.step(now).into_iter().for_each(|client| writer.admit(client));
            }
            writer.tick(now);
            self.evict += writer.take_departures().iter().filter(|gone| gone.evict.is_some()).count() as u64;
            if writer.readers().len() >= self.wait {
                self.wait = 0;
            }
        }
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Send, &self.name);
        account.add(Count::SendReceived, self.sent.frames + self.too_long).add(Count::Sent, self.sent.frames);
        account.add(Count::TooLong, self.too_long).add(Count::SendFull, self.full);
        account.add(Count::SendEvicted, self.evict);
    }
}

impl Drop for ShmTx {
    /// Readers receive the committed frames, then the end.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }
}
