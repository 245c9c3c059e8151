//! `linerate doctor`: what decides on this machine whether frames get lost, and what mends it.
//!
//! A check is a function and a row in the file of its subject; `SUBJECTS` has all rows. It reads files through a `Tree`,
//! which tests make, and what a driver says from `Facts`, so that none of them asks the machine by itself.

mod disk;
mod drops;
mod finding;
mod fix;
mod host;
mod interrupts;
mod kernel;
mod link;
mod memory;
mod mended;
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

use self::finding::{Check, Finding, Look, Machine, Severity};
use self::fix::{Step, Turn};
use self::port::Port;
use self::report::Found;
use self::self_test::{Tested, Way};
use self::tree::Tree;
use crate::exit::{Exit, usage};
use anyhow::ensure;
use linerate_port::Spec;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Options of `linerate doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # the machine, and what is wrong with its interfaces
  linerate doctor
  # all that decides over loss at a port, and in the folder for its files
  linerate doctor eth0 --for .
  linerate doctor 'xdp:eth0?netns=lab-left' --verbose
  # mend what can be put back, as long as a capture lasts
  linerate doctor eth0 --fix -- linerate capture eth0 -w out.pcapng
  # does every byte arrive? here, and over a cable between two ports
  linerate doctor --self-test
  linerate doctor --self-test --yes eth1 eth2
  # commands that mend what is bad or worth a warning
  linerate doctor eth0 --json |
    jq -r '.findings[]|select(.severity|IN(\"bad\",\"warn\")).mend[]'
Commands are for bash and zsh, and want to be root's. --fix changes offloads, receive rings, files of /proc/sys and governors, says
so before, and puts all back when COMMAND ends, or at Ctrl-C, SIGTERM, SIGHUP and SIGQUIT; the status is that of COMMAND then.")]
pub struct Args {
    /// Ports to look at, such as eth0 or xdp:eth0; where there are none, all interfaces that are up, shortly
    #[arg(value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// Look also at this folder, to which captures are to be written
    #[arg(long = "for", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Show also what is as it should be
    #[arg(short = 'v', long, conflicts_with = "json")]
    verbose: bool,
    /// Mend what can be put back, until COMMAND ends or Ctrl-C comes, and put it back then
    #[arg(long, conflicts_with_all = ["json", "verbose"])]
    fix: bool,
    /// Send 20,000 marked frames into the first port, within 2 s, and compare every byte of them where they arrive: at that port or
    /// the second one; without a port through a pair of interfaces made for it. Status 1 if one does not come, or otherwise
    #[arg(long, conflicts_with = "fix")]
    self_test: bool,
    /// Let --fix change an interface that this machine uses itself, and --self-test send frames that leave this machine
    #[arg(long)]
    yes: bool,
    /// Print one JSON document (schema linerate/doctor/1)
    #[arg(long)]
    json: bool,
    /// With --fix: a command to run meanwhile, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// All checks, in the order in which they are shown.
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

/// Looks, and mends if it is asked to.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let specs = args.ports.iter().map(|port| Spec::parse(port)).collect::<Result<Vec<_>, _>>()?;
    if let Some(folder) = &args.folder {
        ensure!(folder.is_dir(), "--for {}: there is no such folder", folder.display());
    }
    if args.fix && specs.is_empty() {
        return Err(usage("--fix wants to know for which port, as in linerate doctor eth0 --fix"));
    }
    // Before the look: what another run has mended comes back when that ends.
    let _turn = args.fix.then(Turn::take).transpose()?;
    let way = args.self_test.then(|| Way::of(&specs, args.yes)).transpose()?;
    let machine = Machine { tree: Tree::at("/"), folder: args.folder.clone(), rules: rules() };
    let ports = if specs.is_empty() { Port::all()? } else { specs.iter().map(Port::look).collect::<Result<_, _>>()? };
    if args.fix && !args.yes {
        ports.iter().try_for_each(check_unused)?;
    }
    let found = examine(&machine, &ports);
    if args.json {
        let tested = way.map(|way| way.test()).transpose()?;
        report::document(&found, tested.as_ref())?;
        return Ok(exit_of(tested.as_ref()));
    }
    // Of interfaces that nobody asked about what is wrong is enough.
    let least = match (args.verbose, specs.is_empty()) {
        (true, _) => Severity::Ok,
        (false, true) => Severity::Warn,
        (false, false) => Severity::Note,
    };
    report::print(&found, least);
    if let Some(way) = way {
        let tested = way.test()?;
        tested.print();
        return Ok(exit_of(Some(&tested)));
    }
    if !args.fix {
        return Ok(Exit::Done);
    }
    mended::run(&machine.tree, steps(&found), &args.command)
}

/// Refuses to change an interface that the host itself uses, be it through a bond, bridge or VLAN above: it may be without a link
/// for a moment, and somebody sit at the other end of it.
fn check_unused(port: &Port) -> anyhow::Result<()> {
    match &port.facts.uses[..] {
        [] => Ok(()),
        _ if port.netns.is_some() => Ok(()),
        uses => Err(usage(format!(
            "this machine uses {} ({}): give --yes if it is to be changed, which may interrupt it",
            port.facts.found.name,
            uses.join(", ")
        ))),
    }
}

/// Returns the firewall's rules with their counters, from the programs that are installed; `None` without any.
fn rules() -> Option<String> {
    let said = |words: &[&str]| {
        let run = |folder: &str| {
            let mut command = Command::new(format!("{folder}{}", words[0]));
            command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).output()
        };
        let output = ["/usr/sbin/", "/sbin/", "/usr/bin/"].iter().find_map(|folder| run(folder).ok())?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // nft lists the rules of iptables too, but for those of its legacy variant.
    let nft = said(&["nft", "list", "ruleset"]);
    let tables = if nft.is_some() {
        ["iptables-legacy-save", "ip6tables-legacy-save"]
    } else {
        ["iptables-save", "ip6tables-save"]
    };
    let tables = tables.into_iter().filter_map(|program| said(&[program, "-c"]));
    nft.into_iter().chain(tables).reduce(|all, one| all + &one)
}

/// Findings are no failure; frames that do not arrive are.
fn exit_of(tested: Option<&Tested>) -> Exit {
    if tested.is_none_or(|tested| tested.good) { Exit::Done } else { Exit::Failed }
}

/// Makes all checks: the machine's findings, then each port's, the gravest first.
fn examine<'a>(machine: &Machine, ports: &'a [Port]) -> Vec<Found<'a>> {
    let rows = || SUBJECTS.iter().copied().flatten();
    let of_machine = rows().filter_map(|check| match check.look {
        Look::Machine(look) => Some(Found { port: None, check: check.name, finding: look(machine)? }),
        Look::Port(_) => None,
    });
    let of_ports = ports.iter().flat_map(|port| {
        rows().filter_map(move |check| match check.look {
            Look::Machine(_) => None,
            Look::Port(look) => Some(Found { port: Some(port), check: check.name, finding: look(machine, port)? }),
        })
    });
    let mut found: Vec<Found<'_>> = of_machine.chain(of_ports).collect();
    let group = |one: &Found<'_>| one.port.map(|port| ports.iter().position(|other| std::ptr::eq(other, port)));
    found.sort_by_key(|one| (group(one), std::cmp::Reverse(one.finding.severity)));
    found
}

/// What `--fix` does: all that is worth a warning, or worse.
fn steps<'a>(found: &[Found<'a>]) -> Vec<Step<'a>> {
    let worth = found.iter().filter(|one| one.finding.severity >= Severity::Warn);
    worth
        .flat_map(|one| {
            let Finding { fixes, .. } = &one.finding;
            fixes.iter().map(|fix| Step { port: one.port, fix: fix.clone() })
        })
        .collect()
}
