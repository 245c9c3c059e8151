//! Common parts of the verbs that join ports: options, checks of the ports, opening them, and the end of a run.

use super::inputs::{UserArgs, are_live, link, span};
use super::report_options::ShowArgs;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::view::ledger;
use crate::view::rates::stated;
use crate::view::terminal::{fail, show, show_document};
use linerate_backends::faulty::{Faults, receive_through};
use linerate_backends::inventory::is_default_route;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::{Count, Ledger, LinkType};
use linerate_engine::{RunReport, WaitStrategy};
use linerate_port::{Backend, PortError, RxOptions, RxPort, Spec, Target, TxOptions, TxPort};
use serde::Serialize;
use std::time::Duration;

/// Options of all verbs that join ports.
#[derive(Debug, clap::Args)]
pub(super) struct JoinArgs {
    /// Stop after S seconds
    #[arg(short = 'T', long, value_name = "S")]
    duration: Option<f64>,
    /// Use an interface even if it carries the default route
    #[arg(long)]
    pub yes: bool,
    /// Exit with status 3 if a packet was lost other than by a rule, fault or verdict
    #[arg(long)]
    lossless: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub show: ShowArgs,
    /// Poll without sleeping: lowest delay, uses one full core (bridge: two)
    #[arg(help_heading = "Reception", long)]
    spin: bool,
    #[command(flatten)]
    user: UserArgs,
}

impl JoinArgs {
    /// Returns the maximum duration of the run.
    pub(super) fn duration(&self) -> anyhow::Result<Option<Duration>> {
        self.duration.map(|s| span("--duration", s)).transpose()
    }

    /// Returns the user to run as once these ports are open.
    pub(super) fn identity<'a>(&self, specs: impl IntoIterator<Item = &'a Spec>) -> anyhow::Result<Identity> {
        self.user.identity(are_live(specs))
    }

    /// Returns how to wait for frames.
    pub(super) fn waiting(&self) -> WaitStrategy {
        if self.spin { WaitStrategy::Spin } else { WaitStrategy::Adaptive }
    }

    /// Returns whether to print notes for people.
    pub(super) fn prints_notes(&self) -> bool {
        !self.show.quiet && !self.json
    }

    /// Prints the result of a run, as `document` or as `summary`, and returns the exit status.
    pub(super) fn conclude<D: Serialize>(
        &self,
        run: &RunReport,
        summary: impl FnOnce() -> String,
        document: impl FnOnce() -> D,
    ) -> anyhow::Result<Exit> {
        if self.json {
            show_document(&document())?;
        } else if !self.show.quiet {
            show(ledger::run(run, &summary(), self.show.ledger));
        }
        if let Some(hint) = hint(&run.ledger) {
            fail(hint);
        }
        if let Some(failure) = &run.failure {
            fail(failure);
            return Ok(Exit::Failed);
        }
        let proven = run.quiesced && run.ledger.lost() == 0 && run.ledger.imbalances().is_empty();
        Ok(if self.lossless && !proven { Exit::Lost } else { Exit::Done })
    }
}

/// Opens a port to receive from, so that frames leave the other port as they were on the wire.
pub fn receive_whole(from: &Spec, faults: &Faults, no_faults: bool) -> Result<RxPort, PortError> {
    // One lane keeps the order of frames, and numbers them, which the faults need.
    let options = RxOptions { promiscuous: true, lanes: 1, paused: true, prompt: true, ..RxOptions::default() };
    let mut from = from.clone();
    if link(&from) == LinkType::RAW && from.option("offloads").is_none() {
        // Frames leave the other port with checksums, and must fit its MTU.
        from.options.push(("offloads".to_owned(), "no".to_owned()));
    }
    let mut port = open_rx(&from, &options)?;
    // If the port supports holding frames, they are forwarded without a copy; the fault stage would copy them. Without
    // faults that stage only fills in checksums, and only ports that cannot hold frames report missing ones.
    let is_plain = no_faults && port.queues.iter_mut().all(|queue| queue.holding().is_some());
    Ok(if is_plain { port } else { receive_through(port, faults, from.to_string()) })
}

/// Opens a port to send the frames received from the other one.
pub fn send_as(to: &Spec, from: &Spec) -> Result<TxPort, PortError> {
    open_tx(&REGISTRY.for_sending(to)?, &TxOptions { link: link(from), ..TxOptions::default() })
}

/// Returns the two ports if they can be joined; `yes` accepts interfaces that carry the default route.
pub(super) fn ends(one: &str, other: &str, yes: bool) -> anyhow::Result<[Spec; 2]> {
    let (one, other) = (Spec::parse(one).map_err(usage)?, Spec::parse(other).map_err(usage)?);
    for spec in [&one, &other] {
        let (backend, at) = REGISTRY.innermost(spec)?;
        let target = &at.target;
        let on_host = match backend.target {
            Target::Interface { .. } => at.option("netns").is_none(),
            Target::Device | Target::Tunnel => false,
            _ => {
                return Err(usage(format!(
                    "{spec}: not an interface; for capture files: linerate convert -i 'faulty:pcap:FILE?drop=1%' -w OUT, linerate switch --out DIR"
                )));
            }
        };
        if on_host && !yes && is_default_route(target) {
            return Err(usage(format!("{target} carries the default route of this host; use --yes to join it anyway")));
        }
    }
    let end = |(_, at): (&Backend, Spec)| (at.option("netns").map(str::to_owned), at.scheme, at.target);
    if REGISTRY.innermost(&one).map(end)? == REGISTRY.innermost(&other).map(end)? {
        return Err(usage(format!("{one} is given twice; expected two different ports")));
    }
    if let Some(refusal) = differ(&one, &other) {
        return Err(usage(refusal));
    }
    Ok([one, other])
}

/// Returns the error if the link types of the two ports differ.
fn differ(one: &Spec, other: &Spec) -> Option<String> {
    let (packets, frames) = match (link(one), link(other)) {
        (LinkType::RAW, LinkType::ETHERNET) => (one, other),
        (LinkType::ETHERNET, LinkType::RAW) => (other, one),
        _ => return None,
    };
    Some(format!(
        "{packets} carries IP packets, {frames} Ethernet frames; use mode=tap to carry Ethernet frames on both"
    ))
}

/// Returns the remedy for frames above the MTU.
fn hint(ledger: &Ledger) -> Option<String> {
    let long = ledger.total(Count::TooLong) + ledger.total(Count::ForwardTruncated);
    let made = ledger.total(Count::SuperFrames);
    (long > 0 && made > 0).then(|| {
        format!(
            "{} too long to forward, because a host at one end uses segmentation offload; on that host run \
             ethtool -K INTERFACE tso off gso off gro off (in a lab: offloads=off on the links)",
            stated(long, "packets were")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_with_different_link_types_are_rejected() {
        let differ = |one: &str, other: &str| differ(&Spec::parse(one).unwrap(), &Spec::parse(other).unwrap());
        for (one, other) in [("tun:a", "tun:b"), ("tun:a?mode=tap", "eth0"), ("eth0", "eth1")] {
            assert_eq!(differ(one, other), None, "{one} {other}");
        }
        for (one, other) in [("tun:a", "eth0"), ("eth0", "tun:a"), ("faulty:tun:a?drop=1%", "tun:b?mode=tap")] {
            assert!(differ(one, other).unwrap().contains("use mode=tap"), "{one} {other}");
        }
    }

    #[test]
    fn link_types_of_tunnels() {
        assert_eq!(link(&Spec::parse("tun:a").unwrap()), LinkType::RAW);
        assert_eq!(link(&Spec::parse("tun:a?mode=tap").unwrap()), LinkType::ETHERNET);
    }
}
