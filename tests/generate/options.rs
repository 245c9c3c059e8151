//! Documented effects of options.

use crate::generate::testbed::{Stage, generate, number};
use linerate_burst::LinkType;
use linerate_pcap::Reader;
use linerate_tests::support::Scratch;
use linerate_tests::support::program::run;
use linerate_tests::support::records::{self, Record};

/// Returns the packets that these arguments write to a file.
fn written(scratch: &Scratch, arguments: &[&str]) -> Vec<Record> {
    let output = scratch.file("written.pcap");
    run(&[&["generate", "-q", "--to", &format!("pcap:{output}")], arguments].concat()).good();
    records::read(&output)
}

fn bytes(records: Vec<Record>) -> Vec<Vec<u8>> {
    records.into_iter().map(|record| record.bytes).collect()
}

#[test]
fn several_threads_send_the_same_packets_as_one() {
    let Some(stage) = Stage::of(&["a:eth0,b:eth0,queues=2"]) else { return };
    let (scratch, output) = (Scratch::new(), Scratch::new());
    let output = output.file("got.pcap");
    let what = ["-k", "ip(dst=random(10.0.0.1..10.9.0.0))/udp(sport=1..999)/payload(noise)", "-k", "tcp(seq=1..700)"];
    let what = [&what[..], &["--size", "[64:7, 300:2]", "-c", "700", "--rate", "50kpps"]].concat();
    let mut wanted = bytes(written(&scratch, &what));
    wanted.sort();
    for scheme in ["packet", "xdp"] {
        for threads in ["1", "2"] {
            let capture = stage.0.capture(&output, &["-c", "1400", "--duration", "20"]);
            let to = stage.port(scheme, "a");
            let json = generate(&[&["--to", &to, "--threads", threads], &what[..]].concat()).good().json();
            let senders = json["accounts"].as_array().unwrap().iter().filter(|account| account["stage"] == "send");
            let shares: Vec<u64> = senders.map(|account| number(account, "delivered")).collect();
            let equal: &[u64] = if threads == "1" { &[1400] } else { &[700, 700] };
            assert_eq!((shares.as_slice(), number(&json, "lost")), (equal, 0), "{scheme}: {json}");
            capture.end().good();
            let mut got = bytes(records::read(&output));
            got.sort();
            assert!(got == wanted, "{scheme}, {threads} threads: {} frames differ from those of one thread", got.len());
        }
    }
}

#[test]
fn kept_frames_are_repeated() {
    let scratch = Scratch::new();
    let what = ["-k", "udp(sport=random)/payload(noise)", "--size", "[64, 128, 200]", "--rate", "max", "-c"];
    let first = bytes(written(&scratch, &[&what[..], &["7"]].concat()));
    let kept = bytes(written(&scratch, &[&what[..], &["100", "--keep", "7"]].concat()));
    assert!(kept.len() == 100 && kept.iter().zip(first.iter().cycle()).all(|(kept, first)| kept == first));
    assert!((1..7).all(|at| first[at] != first[0]));
}

#[test]
fn files_record_the_link_type_and_other_ports_need_ethernet() {
    let scratch = Scratch::new();
    for (text, link) in [("udp", 1), ("null/ip/udp", 0), ("chdlc/ip", 104), ("sll/ip6/udp", 113), ("sll2/arp", 276)] {
        for ending in ["pcap", "pcapng.gz"] {
            let file = scratch.file(&format!("{link}.{ending}"));
            run(&["generate", "-q", "--to", &format!("pcap:{file}"), "-k", text, "-c", "3"]).good();
            let mut reader = Reader::open(&file).unwrap();
            assert_eq!(reader.look().unwrap(), 3, "{text}");
            assert_eq!(reader.interfaces()[0].link, LinkType(link), "{text} as {ending}");
        }
    }
    for to in ["packet:lo", "null:x", "faulty:pcap:-"] {
        let said = "expected Ethernet frames, got link type 113; write these to pcap:FILE";
        run(&["generate", "--to", to, "-k", "sll/ip", "-c", "1"]).with_status(2).says(said);
    }
    let said = "\"packet2\": its link type differs from that of stream \"packet1\"";
    run(&["generate", "--to", "pcap:-", "-k", "sll/ip", "-k", "udp"]).with_status(2).says(said);
    let said = "is not supported here; expected ethernet";
    let sll = format!("file({}#2)", scratch.file("113.pcap"));
    run(&["generate", "--to", "pcap:-", "-k", &sll]).with_status(2).says(said);
}

#[test]
fn packets_share_the_rate_round_robin() {
    let scratch = Scratch::new();
    let what = ["-k", "udp(dport=1)", "-k", "udp(dport=2)", "-k", "udp(dport=3)", "--rate", "3kpps", "-c", "20"];
    let got = written(&scratch, &what);
    let ports: Vec<u8> = got.iter().map(|record| record.bytes[37]).collect();
    assert_eq!(ports, [1, 2, 3].repeat(20));
    let gaps: Vec<u64> = got.windows(2).map(|pair| pair[1].time - pair[0].time).collect();
    assert!(gaps.iter().all(|gap| (333_333..=333_334).contains(gap)), "{gaps:?}");
}

#[test]
fn percent_of_line_rate_includes_frame_overhead() {
    let scratch = Scratch::new();
    // 84 bytes per frame on the wire: 134.4 us at 5 Mb/s.
    let times: Vec<u64> = written(&scratch, &["-k", "udp", "-c", "30", "--rate", "50%", "--line", "10mbps"])
        .iter()
        .map(|r| r.time)
        .collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 134_400), "{times:?}");
    run(&["generate", "--to", "pcap:-", "-k", "udp", "--rate", "50%"]).with_status(2).says("--line 10gbps");
    run(&["generate", "--to", "pcap:-", "-k", "udp", "--rate", "101%"]).with_status(2).says("up to 100%");
    for shape in [&["--poisson"][..], &["--burst", "3/1ms"]] {
        let two = ["generate", "--to", "pcap:-", "-k", "udp", "-k", "tcp"];
        run(&[&two, shape].concat()).with_status(2).says("works with one --packet, not 2");
    }
    // Percent of the interface's own line rate, which is 10 Gb/s for a veth.
    let Some(stage) = Stage::up() else { return };
    let json = generate(&["--to", &stage.port("packet", "a"), "-k", "udp", "-c", "30", "--rate", "50%"]).good().json();
    let asked = json["requested_mpps"].as_f64().unwrap();
    assert!((asked - 5e9 / 84.0 / 8.0 / 1e6).abs() < 1e-3, "{json}");
}

#[test]
fn dry_run_shows_frames_by_layer_and_opens_no_port() {
    let what = ["-k", "vlan(id=5)/ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)", "--size", "64", "--rate", "1kpps"];
    let said = run(&[&["generate", "--to", "packet:none0", "--dry-run", "2"], &what[..]].concat()).good().output;
    let starts: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let frame = ["eth", "vlan", "ip", "udp", "payload"];
    assert_eq!(starts, [&["due", "frame"][..], &frame, &["due", "frame"], &frame].concat(), "{said}");
    for part in ["id=5", "dst=10.0.0.1 {10.0.0.1..10.0.0.9 in turn}", "dst=10.0.0.2 ", "dport=53", "64 with FCS"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
