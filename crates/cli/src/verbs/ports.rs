//! `linerate ports`: interfaces, their features, and the backends that work on them.

use crate::exit::Exit;
use crate::view::table::table;
use crate::view::terminal::{show, show_document, shown};
use anyhow::Context;
use linerate_backends::inventory::interfaces;
use linerate_backends::{BACKENDS, REGISTRY};
use linerate_port::{InterfaceInfo, Target};
use serde::Serialize;

/// Options of `linerate ports`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  # interfaces of this host, and the backends that work on them
  linerate ports
  # interfaces of a test host
  linerate ports --netns lab-left
  # names of all interfaces that are up
  linerate ports --json | jq -r '.interfaces[] | select(.link == \"up\").port'")]
pub struct Args {
    /// List interfaces of this network namespace
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Print one JSON document (schema linerate/ports/1)
    #[arg(long)]
    json: bool,
}

/// Lists interfaces.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let found = interfaces(args.netns.as_deref()).context("cannot list interfaces")?;
    if args.json {
        let document = PortsJson {
            schema: "linerate/ports/1",
            netns: args.netns.clone(),
            interfaces: found.iter().map(InterfaceJson::new).collect(),
        };
        show_document(&document)?;
    } else {
        print(&found);
    }
    Ok(Exit::Done)
}

/// Offloads that affect captures: ethtool name and short name.
const OFFLOADS: [(&str, &str); 6] = [
    ("rx-gro", "gro"),
    ("rx-lro", "lro"),
    ("tx-tcp-segmentation", "tso"),
    ("rx-checksum", "rx-csum"),
    ("tx-checksum-ip-generic", "tx-csum"),
    ("rx-vlan-hw-parse", "rx-vlan"),
];

fn print(found: &[InterfaceInfo]) {
    let mut rows = table(&["interface", "driver", "link", "address", "offloads", "mtu", "queues rx/tx", "speed"], 5);
    for one in found {
        let speed = one.speed_mbps.map_or_else(String::new, |mbps| format!("{mbps} Mb/s"));
        rows.add_row([
            one.name.clone(),
            one.driver.clone(),
            link(one).to_owned(),
            one.address.clone(),
            offloads(one).join(" "),
            one.mtu.to_string(),
            format!("{}/{}", one.queues.0, one.queues.1),
            speed,
        ]);
    }
    show(format_args!("{rows}\n\n"));
    for one in found {
        for (scheme, verdict) in REGISTRY.on_interface(one) {
            match verdict {
                Ok(limit) if limit.is_empty() => show(format_args!("  {scheme}:{}  supported\n", shown(&one.name))),
                Ok(limit) => show(format_args!("  {scheme}:{}  supported {}\n", shown(&one.name), shown(&limit))),
                Err(reason) => {
                    show(format_args!("  {scheme}:{}  not supported: {}\n", shown(&one.name), shown(&reason)))
                }
            };
        }
    }
    show("\n");
    for backend in BACKENDS.iter().filter(|backend| !matches!(backend.target, Target::Interface { .. })) {
        show(format_args!("  {}:{}  {}\n", backend.scheme, backend.placeholder.to_uppercase(), backend.sentence));
    }
}

fn link(found: &InterfaceInfo) -> &'static str {
    match (found.up, found.running) {
        (true, true) => "up",
        (true, false) => "no carrier",
        (false, _) => "down",
    }
}

fn offloads(found: &InterfaceInfo) -> Vec<&'static str> {
    OFFLOADS.iter().filter(|(name, _)| found.offloads.iter().any(|on| on == name)).map(|(_, short)| *short).collect()
}

#[derive(Serialize)]
struct PortsJson {
    schema: &'static str,
    netns: Option<String>,
    interfaces: Vec<InterfaceJson>,
}

#[derive(Serialize)]
struct InterfaceJson {
    port: String,
    index: u32,
    driver: String,
    address: String,
    link: &'static str,
    mtu_bytes: u32,
    rx_queues: u32,
    tx_queues: u32,
    speed_mbps: Option<u64>,
    offloads: Vec<String>,
    backends: Vec<BackendJson>,
}

#[derive(Serialize)]
struct BackendJson {
    backend: &'static str,
    works: bool,
    /// Reason if it does not work, or its limits.
    reason: Option<String>,
}

impl InterfaceJson {
    fn new(found: &InterfaceInfo) -> Self {
        let backends = REGISTRY.on_interface(found).into_iter().map(|(backend, verdict)| BackendJson {
            backend,
            works: verdict.is_ok(),
            reason: Some(verdict.unwrap_or_else(|reason| reason)).filter(|reason| !reason.is_empty()),
        });
        InterfaceJson {
            port: found.name.clone(),
            index: found.index,
            driver: found.driver.clone(),
            address: found.address.clone(),
            link: link(found),
            mtu_bytes: found.mtu,
            rx_queues: found.queues.0,
            tx_queues: found.queues.1,
            speed_mbps: found.speed_mbps,
            offloads: found.offloads.clone(),
            backends: backends.collect(),
        }
    }
}
