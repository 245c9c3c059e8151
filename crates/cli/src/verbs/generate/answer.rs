//! Answering for the addresses that are sent from, and finding next hops.

use crate::exit::usage;
use crate::signals::waiting;
use crate::view::terminal::fail;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_engine::answer::Running;
use linerate_engine::{Answering, AnsweringReport, Stop};
use linerate_generate::answer::{ANSWERS_PER_SECOND, Addresses, Answerer, FILTER, Hop, Own, Vlans};
use linerate_port::{RxOptions, Spec, TxOptions};
use linerate_wire::MacAddr;
use std::net::IpAddr;

/// Room for what waits while the answering thread does not run: some thousand questions.
const RING: &str = "4MiB";

/// Options for answering, of every verb that sends.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Routers and hosts")]
pub struct AnswerArgs {
    /// Answer ARP, neighbor solicitations and pings for the source address while sending
    #[arg(long)]
    answer: bool,
    /// Answer for these addresses: PREFIX@MAC or FIRST..LAST@MAC, with @VLAN or @OUTER.INNER behind where they are tagged; may be given again
    #[arg(long, value_name = "PREFIX@MAC")]
    answer_for: Vec<Own>,
    /// Answer at most so many questions a second
    #[arg(long, value_name = "N", default_value_t = ANSWERS_PER_SECOND)]
    answer_rate: u32,
    /// Send through this router: ask for its MAC address and use it as destination
    #[arg(long, value_name = "IP", conflicts_with_all = ["resolve", "dst_mac"])]
    gateway: Option<IpAddr>,
    /// Ask for the MAC address of the destination address and use it
    #[arg(long, conflicts_with_all = ["dst_mac"])]
    resolve: bool,
}

/// Who sends: the source addresses of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Source MAC address.
    pub mac: MacAddr,
    /// Source IP address.
    pub ip: IpAddr,
    /// The VLANs that frames are sent in.
    pub vlans: Vlans,
}

impl AnswerArgs {
    /// Opens what is needed to answer, and to ask, on the interface that `to` sends into; nothing where nothing of
    /// that is asked for. `senders` are those that `--answer` answers for.
    pub fn open(&self, to: &Spec, senders: &[Sender]) -> anyhow::Result<Option<Answering>> {
        if !self.is_wanted() {
            return Ok(None);
        }
        let mut own = self.answer_for.clone();
        if self.answer {
            own.extend(senders.iter().map(|sender| Own { vlans: sender.vlans, ..Own::one(sender.ip, sender.mac) }));
        }
        let own = Addresses::new(own).map_err(usage)?;
        let spec = beside(to)?;
        let options = RxOptions { promiscuous: true, filter: FILTER.into(), lanes: 1, ..RxOptions::default() };
        let mut receiving = spec.clone();
        receiving.options.push(("ring".into(), RING.into()));
        let from = open_rx(&receiving, &options)?;
        let to = open_tx(&spec, &TxOptions::default())?;
        Ok(Some(Answering::new(from, to, Answerer::new(own, self.answer_rate))))
    }

    /// The MAC address of the gateway, or of `destination`, asked for by `sender`; nothing where it is not asked for.
    pub fn next_hop(
        &self,
        answering: Option<&mut Answering>,
        sender: Sender,
        destination: IpAddr,
    ) -> anyhow::Result<Option<MacAddr>> {
        let (true, Some(answering)) = (self.asks(), answering) else { return Ok(None) };
        let target = self.gateway.unwrap_or(destination);
        let hop = Hop::new(target, sender.ip, sender.mac, sender.vlans).map_err(usage)?;
        Ok(waiting(|| answering.resolve(&[hop], &Stop::new()))?.first().copied())
    }

    /// Whether anybody is to be answered or asked.
    pub fn is_wanted(&self) -> bool {
        self.answer || !self.answer_for.is_empty() || self.asks()
    }

    /// Whether the destination itself is to be asked for.
    pub fn resolves_destination(&self) -> bool {
        self.resolve
    }

    fn asks(&self) -> bool {
        self.gateway.is_some() || self.resolve
    }
}

/// Ends the answers, and says what went wrong with them.
pub fn finish(running: Option<Running>) -> AnsweringReport {
    let report = running.map(Running::finish).unwrap_or_default();
    if let Some(failure) = &report.failure {
        fail(format_args!("answering ended early: {failure}"));
    }
    report
}

/// The `packet` port of the interface that frames leave through, whatever they leave by.
fn beside(to: &Spec) -> anyhow::Result<Spec> {
    let Some(at) = REGISTRY.interface(to) else {
        return Err(usage(format!("nobody can be answered or asked on {to}: it is no interface")));
    };
    let options = at.options.into_iter().filter(|(key, _)| key == "netns").collect();
    Ok(Spec { scheme: "packet".into(), target: at.target, queues: None, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_by_the_interface_that_is_sent_into() {
        for (to, by) in [
            ("eth0", "packet:eth0"),
            ("xdp:eth0@0-3?netns=a&copy=zero", "packet:eth0?netns=a"),
            ("faulty:xdp-live:eth0?drop=1%", "packet:eth0"),
        ] {
            assert_eq!(beside(&Spec::parse(to).unwrap()).unwrap().to_string(), by);
        }
        let error = beside(&Spec::parse("pcap:x.pcap").unwrap()).unwrap_err().to_string();
        assert!(error.contains("pcap:x.pcap: it is no interface"), "{error}");
    }
}
