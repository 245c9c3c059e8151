//! `linerate switch`: forwards between many ports by rules, or as a learning bridge.

pub(crate) mod control;
mod open;
mod report;

use self::control::SwitchControlListener;
use self::open::SwitchPorts;
use super::decide::{DecideArgs, share};
use super::port_pair::JoinArgs;
use super::rings::ring_name;
use super::units::entries;
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, socket_folder};
use crate::signals::{read_text, stop_on_signals};
use crate::verbs::inputs::{notes_of, span};
use crate::view::live::{Live, answer};
use crate::view::terminal::{print_stderr, shown};
use anyhow::Context;
use linerate_burst::{Nanos, random};
use linerate_engine::switching::{EngineRing, SwitchConsumer};
use linerate_engine::{Progress, Receive};
use linerate_port::RxPort;
use linerate_switch::text::{PortNames, parse_rule, show_actions, show_match};
use linerate_switch::{Action, InstalledRule, LearnOptions, Match, Options, PortNo, PortVlans, RingNo, Rule, Switch};
use std::time::{Duration, SystemTime};

/// Options of `linerate switch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # a learning bridge
  linerate switch eth1 eth2 eth3
  # web traffic to eth2, everything else to eth3, replies to eth1
  linerate switch eth1 eth2 eth3 \\
    --rule 'tcp,in_port=eth1,tp_dst=80,actions=eth2' \\
    --rule 'priority=1,in_port=eth1,actions=eth3' \\
    --rule 'priority=0,actions=eth1'
  # VLANs: a trunk at eth1, access ports at eth2 and eth3
  linerate switch eth1 eth2 eth3 --vlan eth1:trunk=10,20 \\
    --vlan eth2:access=10 --vlan eth3:access=20
  # rules applied to capture files; out/1.pcap has the packets sent to port 1
  linerate switch pcap:a.pcap pcap:b.pcap --rules rules.txt --out out
  # TCP through an engine (another process); everything else directly
  linerate switch eth1 eth2 --inspect ids --on-death open \\
    --rule 'tcp,actions=inspect:ids,normal' \\
    --rule 'priority=1,actions=normal'
  # show and change the rules of a running switch, without losing a packet
  linerate switch eth1 eth2 --control /run/switch.sock
  linerate ctl /run/switch.sock dump-flows
  linerate ctl /run/switch.sock add-flow 'ip,actions=dec_ttl,normal'
Rules as in ovs-ofctl add-flow, in one table: MATCHES,actions=ACTIONS
  priority=N cookie=N idle_timeout=S hard_timeout=S
  in_port dl_src dl_dst dl_type dl_vlan dl_vlan_pcp vlan_tci nw_src nw_dst
  nw_proto nw_tos nw_ecn nw_ttl nw_frag tp_src tp_dst tcp_flags icmp_type
  icmp_code arp_op arp_spa arp_tpa ipv6_src ipv6_dst
  ip ipv6 arp icmp icmp6 tcp tcp6 udp udp6 sctp sctp6
  actions: output:PORT PORT output(port=N,max_len=L) in_port normal flood all
  drop mod_dl_src mod_dl_dst mod_vlan_vid mod_vlan_pcp strip_vlan push_vlan
  mod_nw_src mod_nw_dst mod_nw_tos mod_nw_ttl dec_ttl mod_tp_src mod_tp_dst
  set_field:V->F
  inspect:NAME  continue with the next action if the reader of ring NAME passes
  sample:1/N    continue with the next action for one packet in N
Rules name ports by number (1, 2, ..) or name; NAME=PORT gives a port a name.
A port shm:NAME only sends: a mirror that other processes read.
Hosts must send packets that fit the link: turn off offloads there
(ethtool -K eth0 tso off gso off gro off).")]
#[command(mut_arg("json", |arg| arg.help("Print one JSON document at the end (schema linerate/switch/1)")))]
pub struct Args {
    /// Ports, numbered from 1
    #[arg(value_name = "PORT", required = true)]
    ports: Vec<String>,
    /// Rule; repeatable; packets without a rule are dropped [default: the rule actions=normal]
    #[arg(long, value_name = "RULE")]
    rule: Vec<String>,
    /// File of rules, one per line; # starts a comment
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,
    /// VLANs of a port for action normal: PORT:access=10, PORT:trunk=10,20-30 or PORT:trunk=10,native=5
    #[arg(long, value_name = "PORT:VLANS")]
    vlan: Vec<String>,
    /// Size of the MAC table of action normal
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = entries)]
    mac_entries: usize,
    /// Aging time of the MAC table in seconds
    #[arg(long, value_name = "S", default_value_t = 300.0)]
    mac_age: f64,
    /// Forward link-local frames (spanning tree and the like) with action normal
    #[arg(long)]
    forward_reserved: bool,
    /// Directory for the output of ports that are files: DIR/PORT.pcap
    #[arg(long, value_name = "DIR")]
    out: Option<String>,
    /// Policy for a full output port [default: wait if all inputs are files, else drop]
    #[arg(long, value_name = "HOW")]
    on_full: Option<OnFull>,
    /// Create ring NAME (with a /: a socket path) for an engine, such as linerate inspect shm:NAME, that decides about
    /// packets of rules with inspect:NAME; repeatable
    #[arg(long, value_name = "NAME")]
    inspect: Vec<String>,
    #[command(flatten)]
    decide: DecideArgs,
    /// Accept commands of linerate ctl PATH during the run (socket for its owner only)
    #[arg(long, value_name = "PATH")]
    control: Option<String>,
    #[command(flatten)]
    join: JoinArgs,
}

/// Policy for a full output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnFull {
    /// Drop and count the packets
    Drop,
    /// Pause all ports until there is room
    Wait,
}

/// Runs `linerate switch`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let joined = SwitchPorts::parse(&args.ports, args.out.as_deref(), args.join.yes)?;
    let duration = args.join.duration()?;
    let switch = args.switch(&joined)?;
    let identity = args.join.identity(joined.specs())?;
    // All ports receive before one sends: an xdp: queue sends through the socket that receives from it.
    let (mut from, numbers) = joined.open_rx()?;
    let live = joined.open_tx(false)?;
    let control = args.control.as_deref().map(SwitchControlListener::listen).transpose()?;
    let (rings, mut notes) = args.rings(&identity)?;
    let assumed = identity.assume()?;
    let to = assumed.open(|| joined.add_files(live))?;
    notes.extend(from.iter().flat_map(notes_of));
    notes.extend(args.control.iter().map(|path| format!("controlled by linerate ctl {path}")));
    let mut folders: Vec<_> = control.as_ref().and_then(SwitchControlListener::folder).into_iter().collect();
    for ring in &args.inspect {
        folders.extend(socket_folder(ring)?);
    }
    let session = assumed.confine(&folders);
    let stop = stop_on_signals(&session)?;
    notes.extend_from_slice(session.notes());
    let progress = Progress::new();
    if args.join.prints_notes() {
        args.announce(&joined, &switch, &notes);
    }
    let waits = args.on_full.map_or(joined.is_all_files(), |how| how == OnFull::Wait);
    let mut switching = SwitchConsumer::new(switch, to, numbers, waits, progress.clone()).with_engines(rings);
    let control = control.map(|control| control.serve(switching.tasks(), joined.names(&args.inspect), stop.clone()));
    let news = args.join.show.news(args.join.json);
    let live = Live::start(&progress, "switched", args.join.show.interval(args.join.json)?);
    let answers = answer(&progress, "sent", String::new)?;
    from.iter_mut().flat_map(|port: &mut RxPort| &mut port.queues).for_each(|queue| queue.start());
    let run =
        Receive { ports: from, waiting: args.join.waiting(), duration, stop: stop.clone() }.run(&mut [&mut switching]);
    stop.request();
    drop((live, answers, news, control));
    report::conclude(args, &joined, &run, &switching)
}

impl Args {
    /// Creates the switch.
    fn switch(&self, joined: &SwitchPorts) -> anyhow::Result<Switch> {
        let age = span("--mac-age", self.mac_age)?;
        if self.mac_entries == 0 || self.mac_entries > 1 << 24 || age < Duration::from_secs(1) {
            return Err(usage("--mac-entries must be 1 to 16777216, --mac-age at least 1 second"));
        }
        let mut options = Options { ports: joined.vlans(), ..Options::new(joined.len()) };
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Nanos(u64::try_from(started.as_nanos()).unwrap_or_default());
        let seed = random::mix(now.0 ^ u64::from(std::process::id()) << 40);
        options.learn = LearnOptions { entries: self.mac_entries, age, seed };
        options.forward_reserved = self.forward_reserved;
        for text in &self.vlan {
            let (port, vlans) = text
                .rsplit_once(':')
                .ok_or_else(|| usage(format!("--vlan {text}: expected PORT:VLANS, such as 1:access=10")))?;
            let port = joined.number(port).ok_or_else(|| usage(format!("--vlan {text}: no such port {port}")))?;
            let vlans = PortVlans::parse(vlans).map_err(|error| usage(format!("--vlan {text}: {error}")))?;
            options.ports[usize::from(port) - 1] = vlans;
        }
        let names = joined.names(&self.inspect);
        let file = self.rules.as_ref().map(|path| read_text(path).with_context(|| format!("--rules {path}")));
        let file = file.transpose()?.unwrap_or_default();
        let path = self.rules.as_deref().unwrap_or_default();
        let in_file = (1..).zip(file.lines()).map(|(line, text)| (format!("{path}:{line}"), text));
        let mut switch = Switch::new(options);
        let mut many = Vec::new();
        let given = self.rule.iter().map(|text| (format!("--rule {text}"), text.as_str()));
        for (place, text) in in_file.chain(given) {
            let Some(text) = line_of(text) else { continue };
            let rule = parse_rule(text, &names).map_err(|error| usage(format!("{place}: {error}")))?;
            // With thousands of rules the search for ambiguous ones would dominate the start.
            if switch.count() >= 1000 {
                many.push(rule);
                continue;
            }
            let is_same = |one: &&InstalledRule| one.rule.matches == rule.matches && one.rule.priority == rule.priority;
            if self.join.prints_notes() && switch.rules().iter().any(is_same) {
                print_stderr(format_args!(
                    "{}\n",
                    shown(&format!("{text}: replaces the earlier rule with this match"))
                ));
            } else if let Some(other) = self.join.prints_notes().then(|| switch.ambiguous(&rule)).flatten() {
                let (one, other) = (text, show_match(&other.rule.matches));
                let line = format!("{one}: overlaps {other} with the same priority; the older rule is applied first");
                print_stderr(format_args!("{}\n", shown(&line)));
            }
            switch.add(rule, now);
        }
        switch.add_all(many, now);
        if self.rules.is_none() && self.rule.is_empty() {
            switch.add(Rule::normal(), now);
        }
        let is_normal = |rule: &&InstalledRule| rule.rule.actions.contains(&Action::Normal);
        if !self.vlan.is_empty() && self.control.is_none() && !switch.rules().iter().any(is_normal) {
            return Err(usage("--vlan needs a rule with the action normal"));
        }
        Ok(switch)
    }

    /// Creates the rings of `--inspect`.
    fn rings(&self, identity: &Identity) -> anyhow::Result<(Vec<EngineRing>, Vec<String>)> {
        let (policy, mut notes) = (self.decide.policy()?, Vec::new());
        let mut rings = Vec::new();
        for (at, name) in self.inspect.iter().enumerate() {
            ring_name("--inspect", name)?;
            let is_word =
                !name.is_empty() && !name.contains(|letter: char| ",() ".contains(letter) || letter.is_control());
            if !is_word || self.inspect[..at].contains(name) {
                return Err(usage(format!(
                    "--inspect {name:?}: invalid or duplicate name; expected one without commas and blanks"
                )));
            }
            let (sharing, ring_notes) = share(identity, self.decide.sharing(name, identity)?)?;
            notes.extend(ring_notes);
            rings.push(EngineRing { name: name.clone(), sharing, policy });
        }
        if !rings.is_empty() {
            notes.extend(self.decide.lines());
        }
        Ok((rings, notes))
    }

    fn announce(&self, joined: &SwitchPorts, switch: &Switch, notes: &[String]) {
        for (number, port) in (1..).zip(joined.texts()) {
            let vlans = &switch.ports()[number - 1];
            print_stderr(format_args!("{}\n", shown(&format!("port {number}: {port}, {vlans}"))));
        }
        let rules = switch.rules();
        let summary = match &rules[..] {
            [one] if one.rule == Rule::normal() => "no rules: learning bridge".to_owned(),
            [one] => {
                let matches = show_match(&one.rule.matches);
                format!("1 rule: {matches} actions={}", show_actions(&one.rule.actions, &self.inspect))
            }
            rules => format!("{} rules", rules.len()),
        };
        let drops_rest = !rules.iter().any(|one| one.rule.matches == Match::default());
        let rest = "packets that match no rule are dropped; priority=0,actions=normal switches them".to_owned();
        for line in std::iter::once(&summary).chain(drops_rest.then_some(&rest)).chain(notes) {
            print_stderr(format_args!("  {}\n", shown(line)));
        }
    }
}

/// Returns the rule of a line without its comment, if any.
fn line_of(text: &str) -> Option<&str> {
    let text = text.split('#').next().unwrap_or_default().trim();
    (!text.is_empty()).then_some(text)
}

/// Names of ports and rings.
#[derive(Clone, Debug)]
pub(super) struct Names {
    ports: Vec<Vec<String>>,
    rings: Vec<String>,
}

impl PortNames for Names {
    /// Finds a port by its number or one of its names.
    fn number(&self, text: &str) -> Option<PortNo> {
        let by_name = self.ports.iter().position(|names| names.iter().any(|name| name == text));
        let by_number = text.parse().ok().filter(|port| (1..=self.ports.len()).contains(port));
        by_name.map(|at| at + 1).or(by_number).and_then(|port| PortNo::try_from(port).ok())
    }

    fn ring(&self, name: &str) -> Option<RingNo> {
        self.rings.iter().position(|ring| ring == name).and_then(|ring| RingNo::try_from(ring).ok())
    }
}
