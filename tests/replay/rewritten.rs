//! Rewritten frames of a real capture, read by tshark: addresses are as expected, and every checksum is as right or
//! as wrong as before.

use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, corpus, has_tools, tool};
use std::net::Ipv4Addr;

const CHECKSUMS: [&str; 6] = [
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
    "sctp.checksum.status",
];
const CHECKS: [&str; 5] = [
    "ip.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "sctp.checksum:CRC-32c",
    "icmp.check_checksum:TRUE",
];
/// The last check does not exist in every version.
const KNOWN_CHECKS: usize = 4;

/// Returns fields of every frame, using the first occurrence of each.
fn fields(file: &str, names: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = vec!["-r", file, "-T", "fields", "-E", "occurrence=f", "-E", "separator=|"];
    CHECKS[..KNOWN_CHECKS].iter().for_each(|check| arguments.extend(["-o", check]));
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    tool("tshark", &arguments).lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

/// Applies the rules of the test to an address, independently of the program.
fn moved(address: &str, turn: u32) -> String {
    let Ok(address) = address.parse::<Ipv4Addr>() else { return address.to_owned() };
    let [a, b, c, d] = address.octets();
    let [a, b, c, d] = match (a, b) {
        (192, 168) => [10, 77, c, d],
        (10, _) => [172, 16 | b & 15, c, d],
        _ => [a, b, c, d],
    };
    let stays = a == 0 || a == 127 || a >= 224;
    let low = u32::from_be_bytes([0, b, c, d]) + if stays { 0 } else { turn * 512 };
    Ipv4Addr::from(u32::from(a) << 24 | low & 0xff_ffff).to_string()
}

#[test]
fn rewritten_frames_keep_their_checksum_state() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let (scratch, file) = (Scratch::new(), file.to_str().unwrap());
    let output = scratch.file("out.pcap");
    let rules = ["ip=192.168.0.0/16:10.77.0.0/16", "ip=10.0.0.0/8:172.16.0.0/12", "port=443:8443", "ttl=-1"];
    let rules: Vec<&str> = rules.iter().flat_map(|rule| ["--rewrite", rule]).collect();
    let to = format!("pcap:{output}");
    let fixed = ["replay", "-q", "--to", &to, "-r", file, "--rate", "max", "--loops", "2", "--shift-ips", "512"];
    run(&[&fixed[..], &rules].concat()).good();
    let names = [&["ip.src", "ip.dst", "ip.ttl"][..], &CHECKSUMS].concat();
    let (before, after) = (fields(file, &names), fields(&output, &names));
    assert_eq!(after.len(), 2 * before.len());
    let (mut changed, mut right) = (0, 0);
    for (index, after) in after.iter().enumerate() {
        let (turn, before) = (index / before.len(), &before[index % before.len()]);
        let wanted = [0, 1].map(|end| moved(&before[end], turn as u32));
        assert_eq!(after[..2], wanted, "frame {index}");
        let ttl = before[2].parse::<u8>().map_or(String::new(), |ttl| if ttl > 1 { ttl - 1 } else { ttl }.to_string());
        assert_eq!(after[2], ttl, "frame {index}");
        assert_eq!(after[3..], before[3..], "frame {index}: {CHECKSUMS:?}");
        changed += usize::from(after[..2] != before[..2]);
        right += usize::from(after[3..].iter().filter(|status| *status == "1").count() > 1);
    }
    assert!(changed > before.len() && right > before.len(), "{changed} changed, {right} checked");
}

#[test]
fn tshark_reads_rewritten_tags_and_macs() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let (scratch, file) = (Scratch::new(), file.to_str().unwrap());
    let output = scratch.file("out.pcap");
    let rules = ["--rewrite", "vlan=push:77:5", "--rewrite", "src-mac=02:00:00:00:00:77"];
    let to = format!("pcap:{output}");
    run(&[&["replay", "-q", "--to", &to, "-r", file, "--rate", "max"][..], &rules].concat()).good();
    let names = [&["eth.src", "vlan.id", "vlan.priority", "frame.protocols"][..], &CHECKSUMS].concat();
    let (before, after) = (fields(file, &names), fields(&output, &names));
    assert_eq!(after.len(), before.len());
    for (index, (after, before)) in after.iter().zip(&before).enumerate() {
        assert_eq!(after[..3], ["02:00:00:00:00:77", "77", "5"], "frame {index}");
        assert_eq!(after[4..], before[4..], "frame {index}");
    }
}
