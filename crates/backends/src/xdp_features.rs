//! XDP features of this kernel and a driver, as far as they are reported before a program is loaded.

use crate::drivers::{self, damages};
use crate::inventory::uses;
use crate::netns::within;
use crate::rtnl::{self, Rtnetlink, XDP_BASIC, XDP_SENDS, XdpFeatures};
use crate::sys::bpf::Program;
use linerate_burst::text::quoted;
use linerate_port::InterfaceInfo;
use std::{fs, io};

/// Features of a virtio device (`VIRTIO_NET_F_GUEST_CSUM`, ..., linux/virtio_net.h): the host may deliver packets
/// without a checksum or larger than a frame.
const HOST_OFFLOADS: [usize; 5] = [1, 7, 8, 9, 10];
/// `VIRTIO_NET_F_CTRL_GUEST_OFFLOADS`: the driver can turn these off.
const CONTROLS_OFFLOADS: usize = 2;

/// Explains why the driver of an interface runs no XDP program, if known. Call it in the interface's network namespace.
pub(crate) fn no_program(found: &InterfaceInfo) -> Option<String> {
    match features(found) {
        Some(has) if has & XDP_BASIC == 0 => return Some(format!("{} does not support XDP programs", driver(found))),
        None if let Some(reason) = drivers::lacks_programs(found) => return Some(reason),
        _ => {}
    }
    // /sys shows the interfaces of the namespace that it was mounted in.
    let is_virtio = found.driver == "virtio_net" && found.netns.is_empty();
    let bits = is_virtio.then(|| fs::read(format!("/sys/class/net/{}/device/features", found.name)).ok())??;
    let reason =
        "virtio_net cannot run XDP programs on this host: its receive offloads (GRO_HW, checksums) cannot be disabled";
    keeps_offloads(&bits).then(|| reason.to_owned())
}

/// Explains why the driver sends no redirected frames, if known.
pub(crate) fn no_sending(found: &InterfaceInfo) -> Option<String> {
    if let Some(reason) = damages(found) {
        return Some(reason);
    }
    let Some(features) = features(found) else { return drivers::lacks_programs(found) };
    match found.driver.as_str() {
        _ if features & XDP_SENDS != 0 => None,
        "veth" => Some(format!(
            "this veth rejects redirected frames; run ethtool -K {} gro on, and the same on its peer",
            found.name
        )),
        // It may send them while a program is attached, which a run does.
        _ if features & XDP_BASIC != 0 => None,
        _ => Some(format!("{} does not send redirected frames", driver(found))),
    }
}

/// Returns the reason why each form of a program was refused, without duplicates.
pub(crate) fn reasons<'a>(refused: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    for (form, error) in refused {
        match reasons.iter_mut().find(|(_, known)| *known == error) {
            Some((forms, _)) if forms.contains(&form) => {}
            Some((forms, _)) => forms.push(form),
            None => reasons.push((vec![form], error)),
        }
    }
    let reasons: Vec<String> =
        reasons.iter().map(|(forms, error)| format!("{}: {error}", forms.join(" and "))).collect();
    reasons.join("; ")
}

/// Returns the name of the driver, or of the interface.
pub(crate) fn driver(found: &InterfaceInfo) -> String {
    if found.driver.is_empty() { found.name.clone() } else { format!("the driver {}", found.driver) }
}

/// Explains that this kernel is older than `least`, if it is.
pub(crate) fn too_old(least: (u32, u32)) -> Option<String> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    (version(&release)? < least).then(|| format!("needs Linux {}.{} or later; this is {release}", least.0, least.1))
}

/// Returns an error if this kernel is older than `least`.
pub(crate) fn check_kernel(least: (u32, u32)) -> io::Result<()> {
    too_old(least).map_or(Ok(()), |reason| Err(io::Error::new(io::ErrorKind::Unsupported, reason)))
}

/// Runs a check inside the network namespace of an interface.
pub(crate) fn in_its_namespace<T: Send>(
    found: &InterfaceInfo,
    ask: fn(&InterfaceInfo) -> Result<T, String>,
) -> Result<T, String> {
    let netns = Some(found.netns.as_str()).filter(|name| !name.is_empty());
    within(netns, || Ok(ask(found))).unwrap_or_else(|error: io::Error| Err(error.to_string()))
}

/// Returns where an XDP program would run, and whether frames can be shared with a host that uses the interface:
/// generic mode cannot.
pub(crate) fn xdp_mode(found: &InterfaceInfo) -> Result<String, String> {
    let Some(reason) = no_program(found) else { return Ok(String::new()) };
    match uses(found) {
        Ok(uses) if uses.is_empty() => Ok(format!("in generic mode only, no faster than packet: ({reason})")),
        Ok(uses) => Err(format!(
            "{reason}; generic mode would take frames away from this host, which uses it ({}); use packet:{}, \
             which shares them, or --take",
            uses.join("; "),
            found.name
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the driver's features if the kernel reports them (Linux 6.3 and later).
fn features(found: &InterfaceInfo) -> Option<u64> {
    XdpFeatures::new()?.of(found.index)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Returns whether a virtio device with these features, a digit each, has offloads that prevent XDP.
fn keeps_offloads(features: &[u8]) -> bool {
    let has = |bit: usize| features.get(bit) == Some(&b'1');
    !has(CONTROLS_OFFLOADS) && HOST_OFFLOADS.into_iter().any(has)
}

/// Describes the program that is already attached.
pub(crate) fn occupied(found: &InterfaceInfo, error: &io::Error) -> io::Error {
    let (id, is_generic) = Rtnetlink::new()
        .ok()
        .and_then(|socket| socket.link(found.index))
        .and_then(|attributes| {
            let xdp = rtnl::attribute(&attributes, rtnl::XDP)?;
            let is_generic = rtnl::attribute(xdp, rtnl::XDP_ATTACHED) == Some(&[2]);
            Some((rtnl::number(rtnl::attribute(xdp, rtnl::XDP_PROGRAM)?), is_generic))
        })
        .unwrap_or_default();
    let mode = if is_generic { "xdpgeneric" } else { "xdp" };
    let whose = id.map_or(String::new(), |id| {
        let name = Program::name_of(id).unwrap_or_default();
        format!(": number {id}{}", if name.is_empty() { String::new() } else { format!(", called {name}") })
    });
    io::Error::new(
        error.kind(),
        format!(
            "another XDP program is attached to {}{whose}; stop its owner, or if it has none run \
             ip link set {} {mode} off",
            found.name,
            quoted(&found.name)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_compare_by_number() {
        assert_eq!(version("5.10.0-46-amd64"), Some((5, 10)));
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert!(version("6.9") < version("6.10") && version("x").is_none());
        assert!(too_old((2, 6)).is_none() && too_old((999, 0)).is_some_and(|text| text.contains("999.0 or later")));
    }

    #[test]
    fn reason_is_reported_once() {
        let refused =
            [("in the driver", "a"), ("in the driver", "a"), ("in the driver", "b"), ("in generic mode", "a")];
        assert_eq!(reasons(refused.into_iter()), "in the driver and in generic mode: a; in the driver: b");
    }

    #[test]
    fn fixed_offloads_exclude_xdp() {
        for (features, keeps) in
            [("1100010110111", true), ("1110010110111", false), ("1000010000000", false), ("", false)]
        {
            assert_eq!(keeps_offloads(features.as_bytes()), keeps, "{features}");
        }
    }
}
