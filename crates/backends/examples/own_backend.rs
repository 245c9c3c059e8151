//! A third-party backend: `steady:N`, a port that receives N frames. Wrappers such as `faulty:` support it too.
use linerate_backends::REGISTRY;
use linerate_burst::{Block, Count, Desc, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{Backend, Feed, Head, PortError, RxOptions, RxPort, RxQueue, Spec, Target};

const STEADY: Backend = Backend {
    scheme: "steady",
    placeholder: "number",
    sentence: "frames",
    target: Target::Device,
    rx_options: &[],
    tx_options: &[],
    open_rx: |spec, _, _| {
        let frames: u64 =
            spec.target.parse().map_err(|_| PortError::wrong(spec.to_string(), "expected a number of frames"))?;
        let mut block = Block::new(1 << 20, 1 << 10);
        let room = |time: &u64| block.push(&Desc::new(Nanos(*time), 0, 60), &[0; 60]);
        (0..frames).take_while(room).count();
        let interfaces = [Interface::new(spec.to_string(), LinkType::ETHERNET, StampSource::User)];
        Ok(RxPort::new(spec.to_string(), vec![Box::new(Steady { block, consumed: 0, interfaces })], Feed::Stored))
    },
    open_tx: |spec, _, _| Err(PortError::wrong(spec.to_string(), "receives only")),
    leaves_when_sent: |_, _| true,
};

struct Steady {
    block: Block,
    consumed: usize,
    interfaces: [Interface; 1],
}

impl RxQueue for Steady {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        let burst = self.block.burst().slice(self.consumed..self.block.len());
        Ok(Head { burst, horizon: Horizon::Ended, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.consumed += frames;
    }

    fn detach(&mut self) {}

    fn wake(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, "steady");
        account.add(Count::Received, self.block.len() as u64).add(Count::Delivered, self.consumed as u64);
    }
}

#[cfg_attr(test, test)]
fn main() {
    let registry = REGISTRY.clone().with(STEADY);
    for (text, frames) in [("steady:5", 5), ("faulty:steady:5?drop=100%", 0)] {
        let mut port = registry.open_rx(&Spec::parse(text).unwrap(), &RxOptions::default()).unwrap();
        assert_eq!(port.queues[0].fill(Nanos::ZERO).unwrap().burst.len(), frames);
    }
}
