//! Answers ARP, NDP and pings for the source addresses of streams, and resolves next hops.

use crate::exit::usage;
use crate::signals::waiting;
use crate::view::terminal::fail;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_engine::answer::ResponderThread;
use linerate_engine::{InterfaceResponder, ResponderReport, Stop};
use linerate_generate::answer::{ANSWERS_PER_SECOND, AddressRange, Addresses, Answerer, FILTER, Hop, Vlans};
use linerate_headers::MacAddr;
use linerate_port::{RxOptions, Spec, TxOptions};
use std::net::IpAddr;

/// Size of the receive ring: some thousand requests can wait while the answering thread does not run.
const RING: &str = "4MiB";

/// Options for answering and resolving, shared by all verbs that send.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Routers and hosts")]
pub struct AnswerArgs {
    /// Answer ARP, neighbor solicitations and pings: at the --to port for the source addresses of the packets, at the
    /// --check port for their destination addresses
    #[arg(long)]
    answer: bool,
    /// Answer at the --to port for these addresses: PREFIX@MAC or FIRST..LAST@MAC, plus @VLAN or @OUTER.INNER if tagged;
    /// repeatable
    #[arg(long, value_name = "PREFIX@MAC")]
    answer_for: Vec<AddressRange>,
    /// Maximum number of answers per second
    #[arg(long, value_name = "N", default_value_t = ANSWERS_PER_SECOND)]
    answer_rate: u32,
    /// Send through this router: resolve its MAC address and use it as destination. A second address, of the router at
    /// the --check port, is resolved there, which finds wrong cabling before the start
    #[arg(long, value_name = "IP[,IP]", value_delimiter = ',', conflicts_with = "resolve")]
    gateway: Vec<IpAddr>,
    /// Resolve the MAC address of the destination address and use it
    #[arg(long)]
    resolve: bool,
}

/// Addresses of a sender or receiver of a stream.
#[derive(Clone, Copy, Debug)]
pub struct HostAddress {
    /// Source MAC address.
    pub mac: MacAddr,
    /// Source IP address.
    pub ip: IpAddr,
    /// VLAN tags of its frames.
    pub vlans: Vlans,
}

impl AnswerArgs {
    /// Opens the ports to answer and resolve on the interface of `to`, if requested. `--answer` answers for `senders`.
    pub fn open(&self, to: &Spec, senders: &[HostAddress]) -> anyhow::Result<Option<InterfaceResponder>> {
        if !self.is_wanted() {
            return Ok(None);
        }
        let mut own = self.answer_for.clone();
        if self.answer {
            own.extend(senders.iter().map(HostAddress::own));
        }
        self.open_for(to, own).map(Some)
    }

    /// Opens the same on the interface of `check`, for `receivers`, if it is an interface other than that of `to`.
    pub fn open_check(
        &self,
        to: &Spec,
        check: &Spec,
        receivers: &[HostAddress],
    ) -> anyhow::Result<Option<InterfaceResponder>> {
        let is_other = REGISTRY.interface(check).is_some_and(|_| packet_port(check).ok() != packet_port(to).ok());
        if !(self.answer || self.gateway.len() > 1) || !is_other {
            return Ok(None);
        }
        let own = if self.answer { receivers.iter().map(HostAddress::own).collect() } else { Vec::new() };
        let mut answering = self.open_for(check, own)?;
        if let Some(gateway) = self.gateway.get(1) {
            let asks = receivers.iter().find(|receiver| receiver.ip.is_ipv4() == gateway.is_ipv4());
            let asks =
                asks.ok_or_else(|| usage(format!("--gateway {gateway}: no packet has a destination of this family")))?;
            ask(&mut answering, *gateway, *asks)?;
        }
        Ok(Some(answering))
    }

    fn open_for(&self, port: &Spec, own: Vec<AddressRange>) -> anyhow::Result<InterfaceResponder> {
        answering(port, own, self.answer_rate)
    }

    /// Resolves the MAC address of the gateway, or of `destination`, in the name of `sender`, if requested.
    pub fn next_hop(
        &self,
        answering: Option<&mut InterfaceResponder>,
        sender: HostAddress,
        destination: IpAddr,
    ) -> anyhow::Result<Option<MacAddr>> {
        let (true, Some(answering)) = (self.asks(), answering) else { return Ok(None) };
        ask(answering, self.gateway.first().copied().unwrap_or(destination), sender).map(Some)
    }

    /// Checks the options against the ports.
    pub fn check(&self, to: &Spec, check: Option<&Spec>) -> anyhow::Result<()> {
        let is_checked =
            check.is_some_and(|check| packet_port(check).is_ok_and(|check| packet_port(to).ok() != Some(check)));
        match self.gateway.len() {
            0 | 1 => Ok(()),
            2 if is_checked => Ok(()),
            2 => Err(usage("--gateway: the second address needs --check at another interface than --to")),
            _ => Err(usage("--gateway: too many addresses; expected one for --to, and one for --check")),
        }
    }

    /// Returns the options of the reverse direction, with the gateways swapped. It answers nothing: the forward
    /// direction does.
    pub fn turned(&self) -> anyhow::Result<Self> {
        let gateway = match self.gateway.as_slice() {
            [] => Vec::new(),
            [_, other] => vec![*other],
            _ => {
                return Err(usage("--gateway: two directions need two addresses, such as --gateway 10.0.0.1,10.0.1.1"));
            }
        };
        let (answer_rate, resolve) = (self.answer_rate, self.resolve);
        Ok(AnswerArgs { answer: false, answer_for: Vec::new(), answer_rate, gateway, resolve })
    }

    /// Returns the probable causes if a router is in the path and nothing was received; `first` is the destination.
    pub fn advice(&self, first: IpAddr) -> String {
        let mut advice = Vec::new();
        if !self.asks() {
            advice.push("packets need the router's MAC address: use --gateway IP".to_owned());
        }
        if !self.answer {
            advice.push(format!("the router resolves {first} at the --check port: use --answer"));
        } else {
            advice.push(format!("the router needs a route to {first}, and forwarding enabled"));
        }
        format!("  if a router is in the path: {}\n", advice.join(";\n  "))
    }

    /// Returns whether to answer or resolve.
    pub fn is_wanted(&self) -> bool {
        self.answer || !self.answer_for.is_empty() || self.asks()
    }

    /// Returns whether to resolve the destination itself.
    pub fn resolves_destination(&self) -> bool {
        self.resolve
    }

    fn asks(&self) -> bool {
        !self.gateway.is_empty() || self.resolve
    }
}

impl HostAddress {
    fn own(&self) -> AddressRange {
        AddressRange { vlans: self.vlans, ..AddressRange::one(self.ip, self.mac) }
    }
}

/// Resolves the MAC address of a next hop.
fn ask(answering: &mut InterfaceResponder, target: IpAddr, sender: HostAddress) -> anyhow::Result<MacAddr> {
    let hop = Hop::new(target, sender.ip, sender.mac, sender.vlans).map_err(usage)?;
    let found = waiting(|| answering.resolve(&[hop], &Stop::new()))?;
    Ok(found[0])
}

/// Stops answering and prints its failure, if any.
pub(crate) fn finish(running: Option<ResponderThread>) -> ResponderReport {
    let report = running.map(ResponderThread::finish).unwrap_or_default();
    report_failure(&report);
    report
}

/// Prints the failure of answering, if any.
pub(crate) fn report_failure(report: &ResponderReport) {
    if let Some(failure) = &report.failure {
        fail(format_args!("answering stopped early: {failure}"));
    }
}

/// Opens the interface of a port to answer for these addresses and to resolve others.
pub(crate) fn answering(port: &Spec, own: Vec<AddressRange>, answer_rate: u32) -> anyhow::Result<InterfaceResponder> {
    let own = Addresses::new(own).map_err(usage)?;
    let spec = packet_port(port)?;
    let options =
        RxOptions { promiscuous: true, filter: FILTER.into(), lanes: 1, prompt: true, ..RxOptions::default() };
    let mut receiving = spec.clone();
    receiving.options.push(("ring".into(), RING.into()));
    let from = open_rx(&receiving, &options)?;
    let to = open_tx(&spec, &TxOptions::default())?;
    Ok(InterfaceResponder::new(from, to, Answerer::new(own, answer_rate)))
}

/// Returns the `packet` port of the interface that `to` sends through, whatever its backend.
pub(crate) fn packet_port(to: &Spec) -> anyhow::Result<Spec> {
    let Some(at) = REGISTRY.interface(to) else {
        return Err(usage(format!("{to}: not an interface; cannot answer or resolve addresses there")));
    };
    let options = at.options.into_iter().filter(|(key, _)| key == "netns").collect();
    Ok(Spec { scheme: "packet".into(), target: at.target, queues: None, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_through_the_interface_of_the_sender() {
        for (to, by) in [
            ("eth0", "packet:eth0"),
            ("xdp:eth0@0-3?netns=a&copy=zero", "packet:eth0?netns=a"),
            ("faulty:xdp-live:eth0?drop=1%", "packet:eth0"),
        ] {
            assert_eq!(packet_port(&Spec::parse(to).unwrap()).unwrap().to_string(), by);
        }
        let error = packet_port(&Spec::parse("pcap:x.pcap").unwrap()).unwrap_err().to_string();
        assert!(error.contains("pcap:x.pcap: not an interface"), "{error}");
    }
}
