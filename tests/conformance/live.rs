//! `xdp-live:` as the sender of a wire, whatever receives: another backend is another scheme.

use crate::backends::{Can, Harness, SMALL, Veth, WINDOW, receive, transmit};
use crate::wire::Wire;
use linerate_port::{RxOptions, RxPort, TxPort};

/// A veth pair whose left host sends live frames.
pub struct Live {
    name: String,
    veth: Veth,
}

impl Live {
    /// To a receiver of the packet backend; `None`, said aloud, where labs cannot be made.
    pub fn to_packet(queues: u32, lanes: Option<usize>) -> Option<Self> {
        let veth = Veth::up(queues, lanes)?;
        // A veth takes XDP frames only if the other end makes packets of them, or has a program.
        let gro = veth.lab().exec("right", "ethtool").unwrap().args(["-K", "eth0", "gro", "on"]).status();
        assert!(gro.unwrap().success());
        Some(Live { name: format!("xdp-live to {}", veth.name()), veth })
    }

    fn sender(&self) -> TxPort {
        transmit(&self.veth.sender("left").replace("packet:", "xdp-live:"), 1)
    }

    fn open_with(&self, options: &RxOptions, more: &str) -> Wire {
        let rx = receive(&self.veth.receiver("right", more), options);
        Wire::live(self.sender(), rx).with_window(WINDOW)
    }
}

impl Harness for Live {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        // What the kernel keeps of a page for itself differs; 3,400 bytes are left on all.
        Can { senders: 1, longest: 3400, ..self.veth.can() }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        self.open_with(options, "")
    }

    fn open_small(&self) -> Wire {
        self.open_with(&RxOptions::default(), SMALL)
    }

    fn reopen(&self, wire: &Wire) -> RxPort {
        self.veth.reopen(wire)
    }
}
