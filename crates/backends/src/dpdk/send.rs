//! The sending side.

use crate::sys::dpdk_device::PluginTxQueue;
use linerate_burst::{Burst, Count, Ledger, Stage};
use linerate_port::{PortError, Sent, TxQueue};

pub(super) struct DpdkTx {
    subject: String,
    queue: PluginTxQueue,
    received: u64,
    sent: Sent,
    too_long: u64,
    too_short: u64,
    full: u64,
}

impl DpdkTx {
    pub(super) fn new(subject: String, queue: PluginTxQueue) -> Self {
        DpdkTx { subject, queue, received: 0, sent: Sent::default(), too_long: 0, too_short: 0, full: 0 }
    }
}

impl TxQueue for DpdkTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let gone = self.queue.put(burst);
        self.received += gone.done as u64;
        self.sent.frames += gone.sent;
        self.sent.bytes += gone.bytes;
        self.too_long += gone.too_long;
        self.too_short += gone.too_short;
        self.full += u64::from(gone.done < burst.len());
        Ok(gone.done)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Send, &self.subject);
        account.add(Count::SendReceived, self.received).add(Count::Sent, self.sent.frames);
        account.add(Count::TooLong, self.too_long).add(Count::TooShort, self.too_short);
        account.add(Count::SendFull, self.full);
    }
}
