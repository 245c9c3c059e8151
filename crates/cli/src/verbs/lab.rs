//! `linerate lab`: test hosts in network namespaces.

use crate::exit::{Exit, usage};
use crate::signals::read_text;
use crate::view::table::table;
use crate::view::terminal::{show, show_document};
use anyhow::Context;
use clap::Subcommand;
use linerate_lab::{Lab, Link, Plan, Removal, list};
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Options of `linerate lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # two hosts linked by a veth pair
  linerate lab up --link left:eth0,right:eth0
  linerate capture 'packet:eth0?netns=lab-right'
  # run a command in one of them
  linerate lab run left -- ip address
  # list all labs, and remove this one
  linerate lab list
  linerate lab down")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a lab, or repair it; an intact lab is left unchanged
    #[command(after_help = "\
Examples:
  # two linked hosts, without and with addresses
  linerate lab up --link left:eth0,right:eth0
  linerate lab up --link left:eth0=10.0.0.1/24,right:eth0=10.0.0.2/24
  # a sensor between two hosts
  linerate lab up --link a:eth0,sensor:p0,queues=4,mtu=22000 \\
    --link b:eth0,sensor:p1
  # a topology file
  linerate lab up --file topology.toml
  # capture at a host of the lab
  linerate capture 'packet:p0?netns=lab-sensor'
Host HOST of lab LAB is the network namespace LAB-HOST: its ports are
'packet:eth0?netns=LAB-HOST'. offloads=off keeps packets of both hosts within
the MTU (for linerate bridge). An end without =ADDRESS has ARP off, so that the
host sends nothing by itself; turn ARP on before you add an address by hand:
  linerate lab run HOST -- ip link set eth0 arp on")]
    Up {
        /// Name of the lab
        #[arg(long, default_value = "lab")]
        name: String,
        /// Two ends, HOST:INTERFACE[=ADDRESS/PREFIX[+...]], separated by a comma, then [,queues=N][,mtu=N][,offloads=off]
        #[arg(long = "link", value_name = "LINK", required_unless_present = "file")]
        links: Vec<Link>,
        /// Read the lab from a TOML file (name, hosts, links) instead
        #[arg(long, value_name = "FILE", conflicts_with_all = ["links", "name"])]
        file: Option<PathBuf>,
    },
    /// Run a command in a host
    Run {
        /// Name of the lab
        #[arg(long, default_value = "lab")]
        name: String,
        /// Name of the host
        host: String,
        /// Command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Remove a lab, including what a crash left of it
    Down {
        /// Name of the lab
        #[arg(long, default_value = "lab", conflicts_with = "all")]
        name: String,
        /// Remove all labs
        #[arg(long)]
        all: bool,
    },
    /// List labs
    List {
        /// Print one JSON document (schema linerate/labs/1)
        #[arg(long)]
        json: bool,
    },
}

/// Creates, uses and removes labs.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Up { name, links, file } => up(name, links, file.as_ref()),
        Action::Run { name, host, command } => run_in(name, host, command),
        Action::Down { name, all } => down(name, *all),
        Action::List { json } => print_list(*json),
    }
}

fn up(name: &str, links: &[Link], file: Option<&PathBuf>) -> anyhow::Result<Exit> {
    let plan = match file {
        None => Plan::from_links(name, links.to_vec()).map_err(usage)?,
        Some(path) => {
            let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
            Plan::from_toml(&text).map_err(|error| usage(format!("{}: {error}", path.display())))?
        }
    };
    let lab = Lab::up(&plan)?;
    show(format_args!("lab {} ({})\n", lab.name(), format!("{:?}", lab.outcome()).to_lowercase()));
    for host in &plan.hosts {
        show(format_args!("  {}  namespace {}\n", host.name, plan.namespace(&host.name)));
    }
    for link in &plan.links {
        show(format_args!("  {link}\n"));
    }
    let bare = plan.links.iter().flat_map(|link| &link.ends).any(|end| end.addresses.is_empty());
    if bare {
        show("  ARP is off on ends without an address: before adding one, ip link set IFACE arp on\n");
    }
    Ok(Exit::Done)
}

fn run_in(name: &str, host: &str, command: &[String]) -> anyhow::Result<Exit> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| usage("no command given; expected linerate lab run HOST -- COMMAND"))?;
    let mut inside = Lab::open(name)?.exec(host, program)?;
    // Replaces this process, so that signals and the exit status are those of the command.
    let error = inside.args(arguments).exec();
    Err(anyhow::Error::new(error).context(format!("cannot run {program} in {host}")))
}

fn down(name: &str, all: bool) -> anyhow::Result<Exit> {
    let names = if all { list()?.into_iter().map(|lab| lab.name).collect() } else { vec![name.to_owned()] };
    for name in names {
        let Removal { name, occupied } = Lab::down(&name)?;
        show(format_args!("removed lab {name}\n"));
        for left in occupied {
            let processes: Vec<String> = left.processes.iter().map(ToString::to_string).collect();
            show(format_args!("  namespace {} still in use by pid {}\n", left.namespace, processes.join(" ")));
        }
    }
    Ok(Exit::Done)
}

fn print_list(json: bool) -> anyhow::Result<Exit> {
    let labs = list()?;
    if json {
        let labs = labs
            .into_iter()
            .map(|lab| LabJson {
                name: lab.name,
                hosts: lab.hosts,
                links: lab.links,
                alive: lab.alive,
                temporary: lab.temporary,
                problem: lab.problem,
            })
            .collect();
        show_document(&LabsJson { schema: "linerate/labs/1", labs })?;
        return Ok(Exit::Done);
    }
    let mut rows = table(&["lab", "state", "hosts", "links"], 2);
    for lab in labs {
        let state = match (&lab.problem, lab.alive, lab.temporary && !lab.creator_alive) {
            (Some(problem), ..) => problem.clone(),
            (_, _, true) => "stale: remove it with lab down --name".into(),
            (_, true, _) => "up".into(),
            (_, false, _) => "incomplete: repair it with lab up, or remove it with lab down".into(),
        };
        rows.add_row([lab.name, state, lab.hosts.to_string(), lab.links.to_string()]);
    }
    show(format_args!("{rows}\n"));
    Ok(Exit::Done)
}

/// `linerate/labs/1`.
#[derive(Serialize)]
struct LabsJson {
    schema: &'static str,
    labs: Vec<LabJson>,
}

#[derive(Serialize)]
struct LabJson {
    name: String,
    hosts: usize,
    links: usize,
    alive: bool,
    temporary: bool,
    problem: Option<String>,
}
