//! Steps: namespaces, silence, links, interfaces, and their removal.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::address::Cidr;
use crate::error::LabError;
use crate::namespace::{Identity, Presence, presence, processes_in, within};
use crate::plan::{Link, LinkEnd, Plan};
use crate::program::{self, InterfaceStatus};
use crate::state::{State, Store};

/// Timeout for interfaces to come up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Duration of the multicast reports of a new IPv6 address with the intervals of [`QUIET`]: two of up to three kernel
/// ticks each, so 60 ms at 100 Hz.
const REPORTS: Duration = Duration::from_millis(100);

/// Interface group of all interfaces of labs, by which they are deleted even if renamed.
const GROUP: u32 = 0x6c72;

/// First interface index of a lab; 1 is the loopback.
const FIRST_INDEX: usize = 2;

/// Directory of the sysctls of IPv6 interfaces.
const IPV6: &str = "/proc/sys/net/ipv6/conf";

/// Settings that keep IPv6 silent on interfaces created later (networking/ip-sysctl): no router solicitation or
/// advertisement, no duplicate address detection, no link-local address. The report interval makes the kernel send the
/// multicast reports of a new address (RFC 3810) at once.
const QUIET: [(&str, &str); 8] = [
    ("accept_ra", "0"),
    ("autoconf", "0"),
    ("router_solicitations", "0"),
    ("accept_dad", "0"),
    ("dad_transmits", "0"),
    ("addr_gen_mode", "1"),
    ("mldv1_unsolicited_report_interval", "1"),
    ("mldv2_unsolicited_report_interval", "1"),
];

/// Condition of an existing lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Sound,
    /// Complete, but an interface is down or lacks an address.
    Unsettled,
    /// A namespace or interface is missing.
    Broken,
}

/// Creates the lab of `state`, which is saved first. Removes what was created if a step fails.
pub(crate) fn build(store: &Store, mut state: State) -> Result<(), LabError> {
    refuse_foreign(&state.plan)?;
    store.save(&state)?;
    let built = build_steps(store, &mut state);
    if built.is_err() {
        // Only namespaces known to be ours: one without identity may be the cause of the failure. The first error is
        // reported, and the state remains if this fails too.
        let _ = clear(store, &state, |recorded, _| recorded.is_some());
    }
    built
}

/// Determines the condition of a lab.
pub(crate) fn inspect(state: &State) -> Result<Condition, LabError> {
    if !state.complete || !all_present(state)? {
        return Ok(Condition::Broken);
    }
    let mut condition = Condition::Sound;
    for host in &state.plan.hosts {
        let shown = program::show(&state.plan.namespace(&host.name))?;
        for (_, _, end) in state.plan.ends().filter(|(_, _, end)| end.host == host.name) {
            match shown.iter().find(|shown| shown.ifname == end.interface) {
                None => return Ok(Condition::Broken),
                Some(shown) if is_configured(end, shown) => {}
                Some(_) => condition = Condition::Unsettled,
            }
        }
    }
    Ok(condition)
}

/// Returns whether every namespace of the lab exists, and is the one that was created.
pub(crate) fn all_present(state: &State) -> Result<bool, LabError> {
    for (namespace, recorded) in state.namespaces() {
        if recorded.is_none() || recorded != identity(presence(&namespace)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sets all interfaces up with their addresses; idempotent. Waits until frames pass and the kernel sends no more on
/// its own.
pub(crate) fn configure(store: &Store, plan: &Plan) -> Result<(), LabError> {
    let done: Vec<Result<(), LabError>> = thread::scope(|scope| {
        let started: Vec<_> = plan
            .hosts
            .iter()
            .map(|host| {
                scope.spawn(|| within(&plan.namespace(&host.name), || configure_host(store, plan, &host.name))?)
            })
            .collect();
        started.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.into_iter().collect::<Result<(), LabError>>()?;
    plan.hosts.iter().try_for_each(|host| wait_until_up(plan, &host.name))?;
    if plan.ends().flat_map(|(_, _, end)| &end.addresses).any(Cidr::is_ipv6) {
        thread::sleep(REPORTS);
    }
    Ok(())
}

/// Removes what was created for `state`, and the state. Returns the namespaces in which processes still run.
///
/// A namespace whose identity was never recorded is removed if it exists: its creation was planned.
pub(crate) fn take_down(store: &Store, state: &State) -> Result<Vec<(String, BTreeSet<u32>)>, LabError> {
    clear(store, state, |recorded, found| recorded.is_none() || recorded == found)
}

fn build_steps(store: &Store, state: &mut State) -> Result<(), LabError> {
    let plan = state.plan.clone();
    let doing = format!("creating lab {}", plan.name);
    for (h, host) in plan.hosts.iter().enumerate() {
        let namespace = plan.namespace(&host.name);
        program::ip(store, &doing, &["netns", "add", &namespace])?;
        state.namespaces[h] = identity(presence(&namespace)?);
        store.save(state)?;
        within(&namespace, silence)??;
    }
    for host in &plan.hosts {
        let first_of = |(_, link): &(usize, &Link)| link.ends[0].host == host.name;
        let links = plan.links.iter().enumerate().filter(first_of).map(|(l, link)| add_link(&plan, l, link));
        let links: Vec<String> = links.collect();
        within(&plan.namespace(&host.name), || program::ip_batch(store, &doing, &links))??;
    }
    configure(store, &plan)?;
    state.complete = true;
    store.save(state)
}

/// Checks that namespaces of these names neither exist nor are planned by another lab.
fn refuse_foreign(plan: &Plan) -> Result<(), LabError> {
    let foreign = |namespace: &str, holder: String, remedy: String| {
        Err(LabError::ForeignNamespace { namespace: namespace.to_owned(), holder, remedy })
    };
    let wanted: Vec<String> = plan.hosts.iter().map(|host| plan.namespace(&host.name)).collect();
    for name in State::names()?.iter().filter(|&name| *name != plan.name) {
        // An unreadable state reserves no names; existing namespaces are checked below.
        let Ok(Some(other)) = State::load(name) else { continue };
        if let Some((namespace, _)) = other.namespaces().find(|(namespace, _)| wanted.contains(namespace)) {
            return foreign(&namespace, format!("belongs to lab {name}"), format!("`linerate lab down --name {name}`"));
        }
    }
    for namespace in &wanted {
        if presence(namespace)? != Presence::Absent {
            let holder = format!("was not created by lab {}", plan.name);
            return foreign(namespace, holder, format!("`ip netns delete {namespace}`"));
        }
    }
    Ok(())
}

/// Keeps IPv6 silent on every interface of the namespace, present and future.
fn silence() -> Result<(), LabError> {
    if !Path::new(IPV6).exists() {
        return Ok(());
    }
    sysctl("all", "disable_ipv6", "1")?;
    sysctl("default", "disable_ipv6", "1")?;
    QUIET.iter().try_for_each(|(key, value)| sysctl("default", key, value))
}

fn sysctl(interface: &str, key: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new(IPV6).join(interface).join(key);
    fs::write(&path, value).map_err(LabError::file("write", path))
}

/// Returns the command that creates a veth pair, to be run in the namespace of its first end.
///
/// Kernels before 6.15 look up an index in the caller's namespace (`__rtnl_newlink`, net/core/rtnetlink.c), where the
/// host's own interfaces have these numbers.
///
/// Every end of the lab has its own index: if both ends have the same one, the kernel treats the pair as a single
/// device and reports the carrier up to a second late (`linkwatch_urgent_event`, net/core).
fn add_link(plan: &Plan, number: usize, link: &Link) -> String {
    let (queues, mtu) = (link.queues, link.mtu);
    let end = |e: usize| {
        let (interface, index) = (&link.ends[e].interface, FIRST_INDEX + 2 * number + e);
        format!("name {interface} index {index} group {GROUP} mtu {mtu} numtxqueues {queues} numrxqueues {queues}")
    };
    let peer = plan.namespace(&link.ends[1].host);
    format!("link add {} type veth peer {} netns {peer}", end(0), end(1))
}

/// Configures the interfaces of one host, from inside its namespace.
fn configure_host(store: &Store, plan: &Plan, host: &str) -> Result<(), LabError> {
    let doing = format!("setting up host {host} of lab {}", plan.name);
    let own = || plan.ends().filter(|(_, _, end)| end.host == host);
    for (_, link, end) in own() {
        if end.addresses.iter().any(Cidr::is_ipv6) {
            sysctl(&end.interface, "disable_ipv6", "0")?;
        }
        if !link.offloads {
            let arguments = ["-K", &end.interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            program::ethtool(store, &doing, &arguments)?;
        }
    }
    let mut commands = vec!["link set dev lo up".to_owned()];
    for (_, _, end) in own() {
        let interface = &end.interface;
        // Without ARP IPv6 neighbour discovery is off too, so addresses of either family need it.
        let arp = if end.addresses.is_empty() { "off" } else { "on" };
        commands.push(format!("link set dev {interface} arp {arp} multicast off up"));
        for cidr in &end.addresses {
            let flag = if cidr.is_ipv6() { " nodad" } else { "" };
            commands.push(format!("address replace {cidr} dev {interface}{flag}"));
        }
    }
    program::ip_batch(store, &doing, &commands)
}

fn wait_until_up(plan: &Plan, host: &str) -> Result<(), LabError> {
    let namespace = plan.namespace(host);
    let started = Instant::now();
    loop {
        let shown = program::show(&namespace)?;
        let is_down = |end: &LinkEnd| !shown.iter().any(|i| i.ifname == end.interface && i.operstate == "UP");
        let ends = plan.ends().map(|(_, _, end)| end).filter(|end| end.host == host);
        let down: Vec<&str> = ends.filter(|end| is_down(end)).map(|end| end.interface.as_str()).collect();
        if down.is_empty() {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(LabError::NotUp { namespace, interfaces: down.join(", "), seconds: PATIENCE.as_secs() });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns whether the interface is up, with the addresses of this end.
fn is_configured(end: &LinkEnd, shown: &InterfaceStatus) -> bool {
    let has = |cidr: &Cidr| {
        let same = |text: &str| text.parse().ok() == Some(cidr.address());
        shown.addr_info.iter().any(|address| same(&address.local) && address.prefixlen == cidr.prefix())
    };
    shown.flags.iter().any(|flag| flag == "UP") && end.addresses.iter().all(has)
}

/// Removes the namespaces for which `ours(recorded identity, identity found)` is true, then the state.
fn clear(
    store: &Store,
    state: &State,
    ours: impl Fn(Option<Identity>, Option<Identity>) -> bool,
) -> Result<Vec<(String, BTreeSet<u32>)>, LabError> {
    let doing = format!("removing lab {}", state.plan.name);
    let (mut doomed, mut leftovers) = (Vec::new(), Vec::new());
    for (namespace, recorded) in state.namespaces() {
        match presence(&namespace)? {
            Presence::Namespace(found) if ours(recorded, Some(found)) => doomed.push((namespace, found)),
            Presence::Leftover if ours(recorded, recorded) => leftovers.push(namespace),
            _ => {}
        }
    }
    for (namespace, _) in &doomed {
        delete_links(store, &doing, namespace)?;
    }
    let identities: Vec<Identity> = doomed.iter().map(|(_, identity)| *identity).collect();
    let processes = processes_in(&identities);
    for namespace in doomed.iter().map(|(namespace, _)| namespace).chain(&leftovers) {
        program::ip(store, &doing, &["netns", "delete", namespace])?;
    }
    store.remove(&state.plan.name)?;
    let names = doomed.into_iter().map(|(namespace, _)| namespace);
    Ok(names.zip(processes).filter(|(_, pids)| !pids.is_empty()).collect())
}

/// Deletes the lab's interfaces in one namespace, and thereby their peers.
///
/// Deleting the namespace is not sufficient: a process that still runs in it would keep the links.
fn delete_links(store: &Store, doing: &str, namespace: &str) -> Result<(), LabError> {
    let group = GROUP.to_string();
    match program::ip(store, doing, &["-n", namespace, "link", "delete", "group", &group]) {
        // ENODEV: no interface of the group is left, since their peers were deleted before.
        Err(LabError::Command { message, .. }) if message.contains("No such device") => Ok(()),
        other => other,
    }
}

fn identity(presence: Presence) -> Option<Identity> {
    match presence {
        Presence::Namespace(identity) => Some(identity),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before Linux 6.15 an index is looked up in the namespace of the caller, where it may be used.
    #[test]
    fn a_link_is_made_from_inside_its_first_namespace() {
        let plan = Plan::from_toml(
            "name = \"demo\"\n[[links]]\nends = [{ host = \"left\", interface = \"eth0\" }, { host = \"right\", interface = \"eth0\" }]",
        );
        let plan = plan.unwrap();
        let command = add_link(&plan, 0, &plan.links[0]);
        let (own, peer) = command.split_once(" type veth peer ").unwrap();
        assert!(own.starts_with("link add name eth0 index 2 ") && !own.contains("netns"), "{command}");
        assert!(peer.contains("name eth0 index 3 ") && peer.ends_with(" netns demo-right"), "{command}");
    }
}
