//! VLAN tags that the card removes before the program runs.

use crate::rtnl::{XDP_VLAN_TAG, XdpFeatures};
use crate::sys::bpf::Mode;
use linerate_burst::text::quoted;
use linerate_port::InterfaceInfo;
use std::io;

/// Returns whether the driver reports removed tags to a program. A program that asks for them loads for every driver,
/// and gets none where this is false.
pub(super) fn are_reported(found: &InterfaceInfo) -> bool {
    XdpFeatures::new().and_then(|ask| ask.metadata(found.index)).is_some_and(|has| has & XDP_VLAN_TAG != 0)
}

/// Returns whether the card removes tags.
fn are_removed(found: &InterfaceInfo) -> bool {
    found.offloads.iter().any(|offload| offload == "rx-vlan-hw-parse")
}

/// Returns the command that leaves tags in packets.
fn remedy(found: &InterfaceInfo) -> String {
    format!("ethtool -K {} rxvlan off", quoted(&found.name))
}

/// Refuses a filter that needs tags which are removed and not reported.
pub(super) fn check(found: &InterfaceInfo, mode: Option<Mode>, filter: &str) -> io::Result<()> {
    if !are_removed(found) || !names_vlan(filter) || mode != Some(Mode::Generic) && are_reported(found) {
        return Ok(());
    }
    let reason = format!(
        "the filter needs VLAN tags, which the card removes without reporting them to XDP; run {}, or use packet:{}",
        remedy(found),
        found.name
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Returns a note if tags are removed and not reported.
pub(super) fn lost(found: &InterfaceInfo, is_reported: bool) -> String {
    match are_removed(found) && !is_reported {
        true => format!("; the card removes VLAN tags, they are lost: {} keeps them", remedy(found)),
        false => String::new(),
    }
}

fn names_vlan(filter: &str) -> bool {
    filter.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "vlan")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_by_vlan_need_tags() {
        let found = |offloads: &[&str]| InterfaceInfo {
            name: "eth1".to_owned(),
            index: u32::MAX >> 1,
            offloads: offloads.iter().map(|name| (*name).to_owned()).collect(),
            ..InterfaceInfo::default()
        };
        let (with, without) = (found(&["rx-vlan-hw-parse"]), found(&["rx-gro"]));
        for filter in ["vlan", "udp and (vlan 7)", "not vlan"] {
            let reason = check(&with, None, filter).unwrap_err().to_string();
            assert!(reason.contains("run ethtool -K eth1 rxvlan off"), "{reason}");
            assert!(check(&without, Some(Mode::Generic), filter).is_ok());
        }
        assert!(check(&with, None, "udp port 53").is_ok());
        assert!(
            lost(&with, false).contains("rxvlan off")
                && lost(&with, true).is_empty()
                && lost(&without, false).is_empty()
        );
    }
}
