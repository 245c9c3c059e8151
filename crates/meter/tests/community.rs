//! Community IDs, compared with published ones and with those of tshark.

use crate::support::captures::{CapturedFrame, captures, load};
use crate::support::{Sent, metered, metered_frames};
use linerate_headers::Link;
use linerate_meter::{Config, End, Flow, Quality};
use std::path::PathBuf;
use std::process::Command;

/// The ID of a record with these ends: for ICMP the ports are type and code.
fn id([source, destination]: [&str; 2], [one, other]: [u16; 2], protocol: u8, seed: u16) -> String {
    let end = |address: &str, port| End { address: address.parse().unwrap(), port };
    let flow = metered(&[Sent::udp(1)], &Config::default(), &[1]).remove(0);
    Flow { ends: [end(source, one), end(destination, other)], protocol, ..flow }.community_id(seed)
}

/// The vectors of the specification's own implementation (corelight/pycommunityid) and of Zeek's tests
/// (community_id_v1).
#[test]
fn ids_match_published_ones() {
    let (corelight, google) = (["128.232.110.120", "66.35.250.204"], ["192.168.1.52", "8.8.8.8"]);
    let (zeek, [hosts, neighbours]) = (
        ["1.2.3.4", "5.6.7.8"],
        [["192.168.0.89", "192.168.0.1"], ["fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea"]],
    );
    let others = ["3ffe:507:0:1:200:86ff:fe05:80da", "3ffe:507:0:1:260:97ff:fe07:69ea"];
    for (ends, ports, protocol, seed, published) in [
        (corelight, [34855, 80], 6, 0, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
        (google, [54585, 53], 17, 0, "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
        (google, [54585, 53], 17, 1, "1:Q9We8WO3piVF8yEQBNJF4uiSVrI="),
        (zeek, [1122, 3344], 6, 0, "1:wCb3OG7yAFWelaUydu0D+125CLM="),
        (zeek, [1122, 3344], 17, 0, "1:0Mu9InQx6z4ZiCZM/7HXi2WMhOg="),
        (zeek, [1122, 3344], 132, 0, "1:EKt4MsxuyaE6mL+hmrEkQ9csDD8="),
        (zeek, [8, 0], 1, 0, "1:crodRHL2FEsHjbv3UkRrfbs4bZ0="),
        (zeek, [11, 0], 1, 0, "1:f/YiSyWqczrTgfUCZlBUnvHRcPk="),
        (zeek, [0, 0], 46, 0, "1:ikv3kmf89luf73WPz1jOs49S768="),
        (zeek, [7, 9], 46, 0, "1:ikv3kmf89luf73WPz1jOs49S768="),
        (hosts, [8, 0], 1, 0, "1:X0snYXpgwiv9TZtqg64sgzUn6Dk="),
        (hosts, [8, 0], 1, 1, "1:03g6IloqVBdcZlPyX8r0hgoE7kA="),
        (hosts, [20, 1], 1, 1, "1:Ie3wmFyxiEyikbsbcO03d2nh+PM="),
        (neighbours, [135, 0], 58, 0, "1:dGHyGvjMfljg6Bppwm3bg0LO8TY="),
        (neighbours, [135, 0], 58, 1, "1:kHa1FhMYIT6Ym2Vm2AOtoOARDzY="),
        (others, [3, 0], 58, 0, "1:/OGBt9BN1ofenrmSPWYicpij2Vc="),
        (others, [3, 0], 58, 1, "1:Ij4ZxnC87/MXzhOjvH2vHu7LRmE="),
    ] {
        assert_eq!(id(ends, ports, protocol, seed), published, "{ends:?} {ports:?} {protocol} {seed}");
        let [one, other] = ends;
        if !matches!(protocol, 1 | 58) {
            assert_eq!(id([other, one], [ports[1], ports[0]], protocol, seed), published);
        } else if matches!(ports[0], 3 | 11 | 20) {
            assert_ne!(id([other, one], ports, protocol, seed), published, "one-way");
        }
    }
}

/// Returns tshark's fields of each frame: its innermost packet's ID, empty if it has none, and protocols.
fn tshark_lines(frames: &[CapturedFrame]) -> Option<Vec<String>> {
    let path = std::env::temp_dir().join(format!("linerate-community-{}.pcap", std::process::id()));
    // The header of a pcap file with nanoseconds, Ethernet.
    let mut file: Vec<u8> =
        [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1].into_iter().flat_map(u32::to_le_bytes).collect();
    for (desc, frame) in frames {
        let head = [0, 0, frame.len() as u32, desc.wire.max(frame.len() as u32)];
        file.extend(head.into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    std::fs::write(&path, file).unwrap();
    let output = Command::new("tshark")
        .args(["-n", "--enable-protocol", "communityid", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"])
        .args(["-T", "fields", "-e", "communityid", "-e", "frame.protocols", "-r"])
        .arg(&path)
        .output();
    std::fs::remove_file(path).unwrap();
    Some(String::from_utf8_lossy(&output.ok()?.stdout).lines().map(str::to_owned).collect())
}

/// Returns the records of a single frame, of the outermost packet and of the innermost one.
fn records_of(frame: &CapturedFrame) -> Vec<Flow> {
    let config = Config { max_flows: 2, ..Config::default() };
    metered_frames(std::slice::from_ref(frame), Link::Ethernet, &config, &[1]).0
}

/// Returns whether tshark decodes another packet: inside a protocol that we do not decapsulate (NetBIOS: of WCCP); or
/// with the addresses of an inner packet without ports and the protocol of the outer one (OSPF and PIM in GRE); or of
/// UDP whose length it rejects (a super-frame's).
fn is_elsewhere(protocols: &str) -> bool {
    let carriers = [":pim:", ":openflow:", ":lwapp:", ":sflow:", ":nsh:", ":udp:mpls:", ":nhrp:", ":cmd:", ":nbss:"];
    let without_ports = protocols.contains(":gre:") && (protocols.ends_with(":ospf") || protocols.ends_with(":pim"));
    carriers.iter().any(|carrier| protocols.contains(carrier)) || without_ports || protocols.ends_with(":ip:udp")
}

/// Each frame in a meter of its own.
#[test]
fn community_ids_match_tshark() {
    if std::env::var_os("LINERATE_PEERS").is_none() {
        return eprintln!("SKIPPED: make test-peers compares with tshark");
    }
    let files: Vec<_> = ["zeek", "flowtest", "ipfixprobe", "ndpi", "tcpdump"].into_iter().flat_map(captures).collect();
    let of_ethernet = |path: &PathBuf| load(path).filter(|(_, link)| *link == Some(Link::Ethernet));
    let frames: Vec<_> = files.iter().filter_map(of_ethernet).flat_map(|(frames, _)| frames).collect();
    let Some(lines) = tshark_lines(&frames) else {
        eprintln!("SKIPPED: tshark is not installed");
        return;
    };
    assert_eq!(lines.len(), frames.len());
    let (mut compared, mut elsewhere, mut without) = (0, 0, 0);
    for (frame, line) in frames.iter().zip(&lines) {
        let flows = records_of(frame);
        let (id, protocols) = line.split_once('\t').unwrap();
        let has = |bit| flows.iter().any(|flow| flow.quality.contains(bit));
        if id.is_empty() || flows.is_empty() || has(Quality::FRAGMENTS) || has(Quality::TRUNCATED) {
            without += 1;
        } else if flows.iter().any(|flow| flow.community_id(0) == *id) {
            compared += 1;
        } else {
            assert!(is_elsewhere(protocols), "{protocols} {id} {flows:?}");
            elsewhere += 1;
        }
    }
    println!("{} captures, {compared} packets agree, {elsewhere} are other packets, {without} have no ID", files.len());
    assert!(files.is_empty() || compared > 50_000 && elsewhere < 100, "{compared} packets");
}
