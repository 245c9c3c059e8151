//! Converts the ledger of a run to pcapng interface statistics.
//!
//! Accounts belong to ports and queues (`packet:eth0`, `packet:eth0@0`), statistics to interfaces. A port belongs to
//! the interface named by its target: `packet:eth0` to `eth0`.

use crate::origin::Statistics;
use linerate_burst::Kind;
use linerate_burst::{Account, Count, Ledger, Stage};
use std::fmt::Write;

/// Returns the counters of interface `name`, as counted by its port.
pub(crate) fn of_interface(run: &Ledger, name: &str) -> Statistics {
    if name.is_empty() {
        return Statistics::default();
    }
    let accounts = |stage| {
        run.accounts()
            .iter()
            .filter(move |account| account.stage == stage && target(&account.subject) == name)
            .collect::<Vec<&Account>>()
    };
    let sum = |accounts: &[&Account], kind| accounts.iter().map(|account| account.sum(kind)).sum::<u64>();
    let (card, queues) = (accounts(Stage::Nic), accounts(Stage::Receive));
    let mut statistics = Statistics::default();
    if !card.is_empty() {
        statistics.received = Some(card.iter().map(|account| account.get(Count::NicReceived)).sum());
        statistics.dropped_by_interface = Some(sum(&card, Kind::Lost));
    }
    if !queues.is_empty() {
        let received = sum(&queues, Kind::Received);
        statistics.received.get_or_insert(received);
        statistics.dropped_by_system = Some(sum(&queues, Kind::Lost));
        statistics.delivered = Some(sum(&queues, Kind::Delivered));
        // The number of packets that a filter in this process rejected is not known per interface.
        statistics.accepted = (run.total(Count::Filtered) == 0).then_some(received);
    }
    statistics
}

/// Formats the ledger as text, one account per line, then details of drivers and clocks.
pub(crate) fn text(run: &Ledger) -> String {
    let mut text = String::new();
    for account in run.accounts() {
        let _ = write!(text, "{} {}:", account.stage.name(), account.subject);
        for (index, (count, frames)) in account.counts().enumerate() {
            let _ = write!(text, "{} {} {frames}", if index == 0 { "" } else { "," }, count.name());
        }
        text.push('\n');
    }
    for detail in run.details() {
        let _ = writeln!(text, "driver {}: {} {}", detail.subject, detail.name, detail.value);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the target of a subject `scheme:target@queue?options`.
fn target(subject: &str) -> &str {
    let target = subject.split_once(':').map_or(subject, |(_, target)| target);
    let target = target.split_once('?').map_or(target, |(target, _)| target);
    target.rsplit_once('@').map_or(target, |(target, _)| target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_a_port_are_summed_and_other_ports_omitted() {
        let mut run = Ledger::new();
        run.account(Stage::Nic, "packet:eth0").add(Count::NicReceived, 100).add(Count::NicMissed, 3);
        for (queue, lost) in [("packet:eth0@0", 1), ("packet:eth0@1?netns=a", 4), ("packet:eth01@0", 9)] {
            let account = run.account(Stage::Receive, queue);
            account.add(Count::Received, 20).add(Count::RingFull, lost).add(Count::Delivered, 20 - lost);
        }
        let expected = Statistics {
            received: Some(100),
            dropped_by_interface: Some(3),
            accepted: Some(40),
            dropped_by_system: Some(5),
            delivered: Some(35),
            ..Statistics::default()
        };
        assert_eq!(of_interface(&run, "eth0"), expected);
        assert_eq!(of_interface(&run, "eth01").received, Some(20));
        assert_eq!(of_interface(&run, "eth2"), Statistics::default());
        run.account(Stage::Select, "").add(Count::Filtered, 1);
        assert_eq!(of_interface(&run, "eth0").accepted, None);
        assert!(text(&run).starts_with("nic packet:eth0: received 100, nic_missed 3\nreceive packet:eth0@0: "));
        run.add_detail("packet:eth0", "card_clock_ahead_ns", 37);
        assert!(text(&run).ends_with("\ndriver packet:eth0: card_clock_ahead_ns 37"), "{}", text(&run));
    }
}
