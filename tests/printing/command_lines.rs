//! Command lines of tcpdump users: `linerate capture` prints exactly what tcpdump prints.

use linerate_tests::support::program::{Ended, linerate, run};
use linerate_tests::support::{Scratch, has_tools};
use std::fs;
use std::process::{Command, Stdio};

/// Packets that both programs print identically.
const PACKETS: &[&str] = &[
    "arp",
    "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=7777,flags=syn,seq=1000,window=64240,mss=1460)",
    "ip(src=10.0.0.2,dst=10.0.0.1)/tcp(sport=7777,dport=4242,flags=syn+ack,seq=7,ack=1001,window=65160)",
    "ip(src=10.0.0.1,dst=10.0.0.2)/tcp(sport=4242,dport=7777,flags=psh+ack,seq=1001,ack=8,window=502)/payload(hex=0102030405)",
    "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=4242,dport=9999)/payload(hex=0102030405)",
    "ip6(src=fd00::1,dst=fd00::2)/udp(sport=4242,dport=9999)/payload(hex=0102030405)",
    "vlan(id=7)/ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1,dport=9998)/payload(hex=01)",
];

/// Options and filters, placed before or after `-r FILE`.
const LINES: &[&str] = &[
    "-n",
    "-nn",
    "-nnl",
    "-lnU",
    "-nK",
    "-n --immediate-mode",
    "-ne",
    "-nx",
    "-nxx",
    "-nX",
    "-nXX",
    "-nA",
    "-nAA",
    "-neX",
    "-nt",
    "-ntt",
    "-nttt",
    "-ntttt",
    "-nttttt",
    "-nS",
    "-nSe",
    "-nq",
    "-nqt",
    "-n#",
    "-n --number",
    "-n --nano",
    "-ntt --nano",
    "-n -c 3",
    "-nc3",
    "-n -s 0",
    "-n -Z root",
    "-n tcp",
    "-n udp port 9999",
    "-n not port 7777 and not arp",
    "-n host 10.0.0.2",
    "-n src net 10.0.0.0/24 and tcp[tcpflags] & tcp-syn != 0",
    "-n ip6",
    "-n vlan",
    "-n -c 2 udp",
    "-n -F FILTER",
    "-d tcp port 80",
    "-dd tcp port 80",
    "-ddd tcp port 80",
];

#[test]
fn tcpdump_command_lines_print_the_same() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let (file, filter) = (scratch.file("typed.pcap"), scratch.file("filter"));
    let to = format!("pcap:{file}");
    let packets: Vec<&str> = PACKETS.iter().flat_map(|packet| ["-k", packet]).collect();
    run(&[&["generate", "-q", "--to", &to, "--rate", "3kpps", "-c", "2"], &packets[..]].concat()).good();
    fs::write(&filter, "udp # datagrams\nor arp\n").unwrap();
    for line in LINES {
        let words: Vec<&str> = line
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(|word| if word == "FILTER" { &filter } else { word })
            .collect();
        let at = words.iter().take_while(|word| word.starts_with('-')).count().min(1);
        let rest = [&words[..at], &["-r", &file], &words[at..]].concat();
        let theirs = output(Command::new("tcpdump").args(&rest));
        let ours = output(&mut linerate(&[&["capture"], &rest[..]].concat()));
        assert!(theirs.lines().count() > 0, "{line}");
        // ASCII lines begin with a tab in linerate, so that no payload looks like a packet; tabs in payloads are dots.
        let compared = |text: &str| if line.contains('A') { text.replace(['\t', '.'], "") } else { text.to_owned() };
        assert_eq!(compared(&ours), compared(&theirs), "{line}");
        if !line.starts_with("-d") {
            let printed = [&["print"][..], &words[..at], &words[at..]].concat();
            assert_eq!(output(linerate(&printed).args(["-r", &file])), ours, "print {line}");
        }
    }
}

/// The checksums that packets should have, with -v; none with -K. The lines of tcpdump have another layout there.
#[test]
fn wrong_checksums_are_those_of_tcpdump() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let (good, file) = (scratch.file("good.pcap"), scratch.file("wrong.pcap"));
    let packets = ["-k", "ip/tcp/payload(len=30)", "-k", "ip/udp/payload(len=31)"];
    run(&[&["generate", "-q", "--to", &format!("pcap:{good}"), "-c", "20"], &packets[..]].concat()).good();
    // The addresses: all checksums are wrong.
    run(&["convert", "-q", "-i", &format!("faulty:pcap:{good}?corrupt=100%x1@26-33&seed=3"), "-w", &file]).good();
    let words = |text: String| -> Vec<String> {
        let is_ours = |word: &&str| word.contains("cksum") || word.contains("->") || *word == "(incorrect";
        let words = text.split_whitespace().collect::<Vec<_>>();
        let pairs = words.windows(2).filter(|pair| is_ours(&pair[0]) && pair[0] != "[no");
        pairs.map(|pair| pair.join(" ")).filter(|pair| pair.contains("->") || pair.contains("incorrect")).collect()
    };
    let theirs = words(output(Command::new("tcpdump").args(["-nnvv", "-r", &file])));
    assert!(theirs.len() > 60, "{theirs:?}");
    assert_eq!(words(output(&mut linerate(&["print", "-vv", &file]))), theirs);
    let unverified = output(&mut linerate(&["print", "-vvK", &file]));
    assert!(!unverified.contains("cksum") && unverified.contains("ttl"), "{unverified}");
}

/// Command lines that write files, use pipes, or print something other than packets.
#[test]
fn tcpdump_command_lines_write_the_same() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("typed.pcap");
    run(&["generate", "-q", "--to", &format!("pcap:{file}"), "-k", PACKETS[4], "-c", "9000"]).good();
    let lines = |file: &str| output(Command::new("tcpdump").args(["-nr", file]));
    let (all, copy) = (lines(&file), scratch.file("copy.pcap"));
    for words in [&["-w", &copy][..], &["-nn", "-U", "-w", &copy, "-Z", "root"], &["-vvv", "-w", &copy, "--print"]] {
        run(&[&["capture", "-r", &file], words].concat()).good();
        assert_eq!(lines(&copy), all, "{words:?}");
    }
    let piped = linerate(&["capture", "-r", &file, "-w", "-"]).stderr(Stdio::null()).output().unwrap().stdout;
    fs::write(&copy, piped).unwrap();
    assert_eq!(lines(&copy), all);
    let from = fs::File::open(&file).unwrap();
    assert_eq!(output(linerate(&["capture", "-n", "-r", "-"]).stdin(from)), all);
    assert_eq!(run(&["capture", "--count", "-nr", &file]).good().output, "9000\n");
    // Two files of at most 1,000,000 bytes: tcpdump's unit.
    let rotated = scratch.file("rotated.pcap");
    run(&["capture", "-r", &file, "-w", &rotated, "-C", "1", "-W", "2", "-Z", "root"]).good();
    for words in [&["-D"][..], &["-L", "-r", &file], &["-vvv", "-c", "1", "-r", &file], &["-p", "-c", "1", "-r", &file]]
    {
        let ended: Ended = run(&[&["capture"], words].concat()).good();
        assert!(!ended.output.is_empty(), "{words:?}");
    }
}

/// Runs a command in UTC and returns its standard output.
fn output(command: &mut Command) -> String {
    let output = command.env("TZ", "UTC").stderr(Stdio::null()).output().expect("the program");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}
