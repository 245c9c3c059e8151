//! `linerate doctor`: checks of this host and of ports for causes of packet loss, with remedies.
//!
//! A check is a function and a row in the file of its subject; `SUBJECTS` has all rows. It reads files through a `Tree`
//! and driver settings from `InterfaceDetails`, never directly from the host, so that tests can supply both.

mod apply;
mod disk;
mod drops;
mod finding;
mod fix;
mod host;
mod interrupts;
mod kernel;
mod link;
mod memory;
mod offloads;
mod port;
mod processors;
mod queues;
mod report;
mod self_test;
mod stack;
mod time;
mod tree;
mod xdp;

#[cfg(test)]
mod tests;

use self::finding::{Check, CheckFunction, Finding, Machine, Severity};
use self::fix::{FixLock, Step};
use self::port::Port;
use self::report::PortFinding;
use self::self_test::{SelfTestResult, TestPath};
use self::tree::Tree;
use crate::exit::{Exit, usage};
use anyhow::ensure;
use linerate_backends::netns::within;
use linerate_port::Spec;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Options of `linerate doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # check the host, and all interfaces that are up
  linerate doctor
  # check one port, and the directory for capture files
  linerate doctor eth0 --dir .
  linerate doctor 'xdp:eth0?netns=lab-left' --verbose
  # fix what can be restored while a capture runs
  linerate doctor eth0 --fix -- linerate capture eth0 -w out.pcapng
  # send and compare test packets: on this host, and between two ports
  linerate doctor --self-test
  linerate doctor --self-test --yes eth1 eth2
  # print the commands that fix errors and warnings
  linerate doctor eth0 --json |
    jq -r '.findings[]|select(.severity|IN(\"error\",\"warning\")).fix[]'
Printed commands are for bash and zsh, and need root. --fix changes offloads,
receive rings, files of /proc/sys and CPU governors; it lists the changes first
and restores all of them when COMMAND ends, or at Ctrl-C, SIGTERM, SIGHUP and
SIGQUIT. The exit status is then that of COMMAND.")]
pub struct Args {
    /// Ports to check, such as eth0 or xdp:eth0 [default: warnings and errors of all interfaces that are up]
    #[arg(value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// Also check this directory, where captures are written
    #[arg(long = "dir", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Also show passing checks
    #[arg(short = 'v', long, conflicts_with = "json")]
    verbose: bool,
    /// Fix warnings and errors that can be restored; restore them when COMMAND ends or at Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "verbose"])]
    fix: bool,
    /// Send 20,000 test packets into the first port within 2 s and compare every byte at the second port (or the same one);
    /// without a port, through a temporary veth pair. Exit status 1 if any is lost or changed
    #[arg(long, conflicts_with = "fix")]
    self_test: bool,
    /// Let --fix change an interface that this host uses itself, and --self-test send packets that leave this host
    #[arg(long)]
    yes: bool,
    /// Print one JSON document (schema linerate/doctor/1)
    #[arg(long)]
    json: bool,
    /// With --fix: command to run while the changes are in effect, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// All checks, in output order.
const SUBJECTS: &[&[Check]] = &[
    kernel::CHECKS,
    processors::CHECKS,
    memory::CHECKS,
    stack::CHECKS,
    host::CHECKS,
    time::CHECKS,
    disk::CHECKS,
    link::CHECKS,
    queues::CHECKS,
    offloads::CHECKS,
    interrupts::CHECKS,
    xdp::CHECKS,
    drops::CHECKS,
];

/// Runs the checks, and applies fixes or the self-test if requested.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let specs = args.ports.iter().map(|port| Spec::parse(port)).collect::<Result<Vec<_>, _>>()?;
    if let Some(folder) = &args.folder {
        ensure!(folder.is_dir(), "--dir {}: no such directory", folder.display());
    }
    if args.fix && specs.is_empty() {
        return Err(usage("--fix needs a port, as in linerate doctor eth0 --fix"));
    }
    // Before the checks: another run restores its changes when it ends.
    let _lock = args.fix.then(FixLock::take).transpose()?;
    let path = args.self_test.then(|| TestPath::of(&specs, args.yes)).transpose()?;
    let ports = if specs.is_empty() { Port::all()? } else { specs.iter().map(Port::look).collect::<Result<_, _>>()? };
    if args.fix && !args.yes {
        ports.iter().try_for_each(check_unused)?;
    }
    // Counters of the host are those of the network namespace of the ports, if it is one.
    let netns = ports.first().and_then(|port| port.netns.clone());
    let netns = netns.filter(|netns| ports.iter().all(|port| port.netns.as_ref() == Some(netns)));
    let (machine, found) = within(netns.as_deref(), || {
        let machine = Machine { tree: Tree::at("/"), folder: args.folder.clone(), rules: rules() };
        let found = examine(&machine, &ports);
        Ok((machine, found))
    })?;
    if args.json {
        let tested = path.map(|path| path.test()).transpose()?;
        report::document(&found, tested.as_ref())?;
        return Ok(exit_of(tested.as_ref()));
    }
    // For interfaces that were not named, show only warnings and errors.
    let least = match (args.verbose, specs.is_empty()) {
        (true, _) => Severity::Ok,
        (false, true) => Severity::Warn,
        (false, false) => Severity::Note,
    };
    report::print(&found, least);
    if let Some(path) = path {
        let tested = path.test()?;
        tested.print();
        return Ok(exit_of(Some(&tested)));
    }
    if !args.fix {
        return Ok(Exit::Done);
    }
    apply::run(&machine.tree, steps(&found), &args.command)
}

/// Refuses to change an interface that the host itself uses, directly or through a bond, bridge or VLAN above it: its link may
/// go down for a moment, and the user may be logged in through it.
fn check_unused(port: &Port) -> anyhow::Result<()> {
    match &port.facts.uses[..] {
        [] => Ok(()),
        _ if port.netns.is_some() => Ok(()),
        uses => Err(usage(format!(
            "{}: this host uses it ({}), and a change may interrupt its link; confirm with --yes",
            port.facts.found.name,
            uses.join(", ")
        ))),
    }
}

/// Returns the firewall's rules with their counters, from the programs that are installed; `None` without any.
fn rules() -> Option<String> {
    let output_of = |words: &[&str]| {
        let run = |folder: &str| {
            let mut command = Command::new(format!("{folder}{}", words[0]));
            command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).output()
        };
        let output = ["/usr/sbin/", "/sbin/", "/usr/bin/"].iter().find_map(|folder| run(folder).ok())?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // nft also lists the rules of iptables, except those of its legacy variant.
    let nft = output_of(&["nft", "list", "ruleset"]);
    let tables = if nft.is_some() {
        ["iptables-legacy-save", "ip6tables-legacy-save"]
    } else {
        ["iptables-save", "ip6tables-save"]
    };
    let tables = tables.into_iter().filter_map(|program| output_of(&[program, "-c"]));
    nft.into_iter().chain(tables).reduce(|all, one| all + &one)
}

/// Findings do not fail the run; a failed self-test does.
fn exit_of(tested: Option<&SelfTestResult>) -> Exit {
    if tested.is_none_or(|tested| tested.ok) { Exit::Done } else { Exit::Failed }
}

/// Runs all checks: findings of the machine, then of each port, most severe first.
fn examine<'a>(machine: &Machine, ports: &'a [Port]) -> Vec<PortFinding<'a>> {
    let rows = || SUBJECTS.iter().copied().flatten();
    let of_machine = rows().filter_map(|check| match check.look {
        CheckFunction::Machine(look) => Some(PortFinding { port: None, check: check.name, finding: look(machine)? }),
        CheckFunction::Port(_) => None,
    });
    let of_ports = ports.iter().flat_map(|port| {
        rows().filter_map(move |check| match check.look {
            CheckFunction::Machine(_) => None,
            CheckFunction::Port(look) => {
                Some(PortFinding { port: Some(port), check: check.name, finding: look(machine, port)? })
            }
        })
    });
    let mut found: Vec<PortFinding<'_>> = of_machine.chain(of_ports).collect();
    let group = |one: &PortFinding<'_>| one.port.map(|port| ports.iter().position(|other| std::ptr::eq(other, port)));
    found.sort_by_key(|one| (group(one), std::cmp::Reverse(one.finding.severity)));
    found
}

/// Returns the changes for `--fix`: those of warnings and errors.
fn steps<'a>(found: &[PortFinding<'a>]) -> Vec<Step<'a>> {
    let worth = found.iter().filter(|one| one.finding.severity >= Severity::Warn);
    worth
        .flat_map(|one| {
            let Finding { fixes, .. } = &one.finding;
            fixes.iter().map(|fix| Step { port: one.port, fix: fix.clone() })
        })
        .collect()
}
