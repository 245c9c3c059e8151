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
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Routers and hosts")]
pub struct AnswerArgs {
    /// Answer ARP, neighbor solicitations and pings while sending: on the port of --to for the addresses that frames come from,
    /// and on that of --check for those they go to
    #[arg(long)]
    answer: bool,
    /// Answer on the port of --to for these addresses: PREFIX@MAC or FIRST..LAST@MAC, with @VLAN or @OUTER.INNER behind where they are tagged; may be given again
    #[arg(long, value_name = "PREFIX@MAC")]
    answer_for: Vec<Own>,
    /// Answer at most so many questions a second
    #[arg(long, value_name = "N", default_value_t = ANSWERS_PER_SECOND)]
    answer_rate: u32,
    /// Send through this router: ask for its MAC address and use it as destination. Behind a comma, the address that it has on the
    /// side of --check: it is asked there too, so that a wrong port is found before a frame is sent
    #[arg(long, value_name = "IP[,IP]", value_delimiter = ',', conflicts_with = "resolve")]
    gateway: Vec<IpAddr>,
    /// Ask for the MAC address of the destination address and use it
    #[arg(long)]
    resolve: bool,
}

/// Who sends: the source addresses of a stream; or who is sent to.
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
            own.extend(senders.iter().map(Sender::own));
        }
        self.open_for(to, own).map(Some)
    }

    /// The same on the interface that is checked, for `receivers`; nothing where that is none, or the one that is sent into.
    pub fn open_check(&self, to: &Spec, check: &Spec, receivers: &[Sender]) -> anyhow::Result<Option<Answering>> {
        let is_other = REGISTRY.interface(check).is_some_and(|_| beside(check).ok() != beside(to).ok());
        if !(self.answer || self.gateway.len() > 1) || !is_other {
            return Ok(None);
        }
        let own = if self.answer { receivers.iter().map(Sender::own).collect() } else { Vec::new() };
        let mut answering = self.open_for(check, own)?;
        if let Some(gateway) = self.gateway.get(1) {
            let asks = receivers.iter().find(|receiver| receiver.ip.is_ipv4() == gateway.is_ipv4());
            let asks =
                asks.ok_or_else(|| usage(format!("--gateway: no frame goes to an address of the kind of {gateway}")))?;
            ask(&mut answering, *gateway, *asks)?;
        }
        Ok(Some(answering))
    }

    fn open_for(&self, port: &Spec, own: Vec<Own>) -> anyhow::Result<Answering> {
        answering(port, own, self.answer_rate)
    }

    /// The MAC address of the gateway, or of `destination`, asked for by `sender`; nothing where it is not asked for.
    pub fn next_hop(
        &self,
        answering: Option<&mut Answering>,
        sender: Sender,
        destination: IpAddr,
    ) -> anyhow::Result<Option<MacAddr>> {
        let (true, Some(answering)) = (self.asks(), answering) else { return Ok(None) };
        ask(answering, self.gateway.first().copied().unwrap_or(destination), sender).map(Some)
    }

    /// Finds what cannot be meant.
    pub fn check(&self, to: &Spec, check: Option<&Spec>) -> anyhow::Result<()> {
        let is_checked = check.is_some_and(|check| beside(check).is_ok_and(|check| beside(to).ok() != Some(check)));
        match self.gateway.len() {
            0 | 1 => Ok(()),
            2 if is_checked => Ok(()),
            2 => Err(usage(
                "--gateway: the second router is asked on the port of --check, and that is no other interface",
            )),
            _ => Err(usage("--gateway: a router on the side of --to, and one on that of --check at most")),
        }
    }

    /// The same for frames that go the other way: the routers have changed sides. Whoever is to be answered is by those who go there.
    pub fn turned(&self) -> anyhow::Result<Self> {
        let gateway = match self.gateway.as_slice() {
            [] => Vec::new(),
            [_, other] => vec![*other],
            _ => return Err(usage("--gateway: frames go both ways, so name both, as in --gateway 10.0.0.1,10.0.1.1")),
        };
        let (answer_rate, resolve) = (self.answer_rate, self.resolve);
        Ok(AnswerArgs { answer: false, answer_for: Vec::new(), answer_rate, gateway, resolve })
    }

    /// What may be wrong where frames go through a router and none came; `first` is where they go.
    pub fn advice(&self, first: IpAddr) -> String {
        let mut advice = Vec::new();
        if !self.asks() {
            advice.push("frames to a router need its MAC address: --gateway IP asks for it".to_owned());
        }
        if !self.answer {
            advice.push(format!("it asks for {first} by ARP or NDP where --check is: --answer answers"));
        } else {
            advice.push(format!("it has to have a route to {first}, and to forward"));
        }
        format!("  with a router between: {}\n", advice.join(";\n  "))
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
        !self.gateway.is_empty() || self.resolve
    }
}

impl Sender {
    /// Where it is.
    fn own(&self) -> Own {
        Own { vlans: self.vlans, ..Own::one(self.ip, self.mac) }
    }
}

/// The MAC address of a next hop.
fn ask(answering: &mut Answering, target: IpAddr, sender: Sender) -> anyhow::Result<MacAddr> {
    let hop = Hop::new(target, sender.ip, sender.mac, sender.vlans).map_err(usage)?;
    let found = waiting(|| answering.resolve(&[hop], &Stop::new()))?;
    Ok(found[0])
}

/// Ends the answers, and says what went wrong with them.
pub(crate) fn finish(running: Option<Running>) -> AnsweringReport {
    let report = running.map(Running::finish).unwrap_or_default();
    tell_failure(&report);
    report
}

/// Says what went wrong with them.
pub(crate) fn tell_failure(report: &AnsweringReport) {
    if let Some(failure) = &report.failure {
        fail(format_args!("answering ended early: {failure}"));
    }
}

/// Answers for these addresses, and asks, on the interface that a port is.
pub(crate) fn answering(port: &Spec, own: Vec<Own>, answer_rate: u32) -> anyhow::Result<Answering> {
    let own = Addresses::new(own).map_err(usage)?;
    let spec = beside(port)?;
    let options = RxOptions { promiscuous: true, filter: FILTER.into(), lanes: 1, ..RxOptions::default() };
    let mut receiving = spec.clone();
    receiving.options.push(("ring".into(), RING.into()));
    let from = open_rx(&receiving, &options)?;
    let to = open_tx(&spec, &TxOptions::default())?;
    Ok(Answering::new(from, to, Answerer::new(own, answer_rate)))
}

/// The `packet` port of the interface that frames leave through, whatever they leave by.
pub(crate) fn beside(to: &Spec) -> anyhow::Result<Spec> {
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
