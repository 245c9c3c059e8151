//! `generate` at a terminal.

use crate::top::pty::Pty;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{has_tools, may_make_labs, tool};
use rustix::process::Signal;

/// Starts to send two streams through a memory port.
fn start(name: &str, more: &[&str]) -> Pty {
    let port = format!("mem:{name}-{}", std::process::id());
    let two = ["-k", "ip/udp(dport=1)", "-k", "ip/udp(dport=2)", "--rate", "2000pps"];
    let arguments = [&["generate", "--to", &port, "--check", &port], &two[..], more].concat();
    Pty::start(&arguments, 80, 24)
}

/// The cells of a stream.
fn row<'a>(screen: &'a str, name: &str) -> [&'a str; 7] {
    let line = screen.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

fn sent(screen: &str, name: &str) -> u64 {
    row(screen, name)[4].replace(',', "").parse().unwrap_or(0)
}

#[test]
fn keys_control_streams() {
    if !has_tools(&["setsid"]) {
        return;
    }
    // Without -T or -c the run would end after the default count.
    let pty = start("keys", &["-T", "600"]);
    pty.wait_raw_mode();
    let screen = pty.wait("both are sent", |screen| sent(screen, "packet1") > 100 && sent(screen, "packet2") > 100);
    assert!(screen.contains("received") && screen.contains("lost 0"), "{screen}");
    assert_eq!(row(&screen, "packet1")[1], "running");
    pty.press(" ");
    pty.wait("the first one pauses", |screen| {
        row(screen, "packet1")[1] == "paused" && row(screen, "packet2")[1] == "running"
    });
    let before = sent(&pty.screen(), "packet1");
    pty.wait("the other continues", |screen| sent(screen, "packet2") > before + 500);
    assert_eq!(sent(&pty.screen(), "packet1"), before, "the paused stream still sends");
    pty.press(" \x1b[Br500pps\r");
    pty.wait("the other is slower", |screen| {
        row(screen, "packet1")[1] == "running" && row(screen, "packet2")[2].starts_with("500")
    });
    pty.press("rnonsense\r");
    pty.wait("the rate is rejected", |screen| screen.lines().last().unwrap().contains("rate: nonsense_"));
    pty.press("\x1b");
    pty.wait_for("q quit");
    pty.press("a+");
    pty.wait("all are faster", |screen| row(screen, "packet2")[2].starts_with("625"));
    pty.press("x");
    pty.wait("all have stopped", |screen| {
        row(screen, "packet1")[1] == "stopped" && row(screen, "packet2")[1] == "stopped"
    });
    pty.wait("all sent packets are received", |screen| {
        let cells = row(screen, "packet2");
        cells[4] == cells[5] && sent(screen, "packet2") > 0
    });
    pty.press("c");
    pty.wait("counters are reset", |screen| sent(screen, "packet2") == 0);
    pty.press("s");
    pty.wait("both restart", |screen| row(screen, "packet2")[1] == "running" && sent(screen, "packet2") > 10);
    pty.press("?");
    pty.wait_for("to leave this page");
    pty.press("xq");
    let (status, screen) = pty.end();
    // The final report is printed.
    assert!(status.success() && screen.contains("ipdv") && screen.contains("packet2"), "{status}: {screen}");
}

#[test]
fn end_of_a_run_prints_the_report_and_restores_the_terminal() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let ended = start("ends", &["-T", "2"]);
    ended.wait_raw_mode();
    let (status, screen) = ended.end();
    assert!(status.success() && screen.contains("packet2"), "{screen}");
    for end in ["\x03", "TERM"] {
        let pty = start("ended", &[]);
        pty.wait_raw_mode();
        pty.wait("it sends", |screen| sent(screen, "packet1") > 0);
        if end == "TERM" {
            pty.signal(Signal::TERM)
        } else {
            pty.press(end)
        }
        let (status, screen) = pty.end();
        assert!(status.success() && screen.contains("packet2"), "{end:?}: {status}: {screen}");
    }
}

#[test]
fn quiet_and_interval_print_lines_without_a_view() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let quiet = start("quiet", &["-q", "-T", "0.5"]);
    let lines = start("lines", &["--interval", "0.2", "-T", "1"]);
    for pty in [quiet, lines] {
        pty.wait("it has ended", |_| pty.written().contains("ipdv") || pty.written().is_empty());
        assert!(!pty.written().contains("\x1b[?1049h"), "{}", pty.written());
        assert!(pty.end().0.success());
    }
}

/// The view keeps streams in the kernel, which sends them faster than this process.
#[test]
fn kernel_streams_are_controlled_together() {
    if !may_make_labs() || !has_tools(&["setsid", "ethtool"]) {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0"]);
    tool("ip", &["netns", "exec", &wire.namespace("b"), "ethtool", "-K", "eth0", "gro", "on"]);
    let to = wire.port("a", "eth0", "").replace("packet:", "xdp-live:");
    let two = ["-k", "ip/udp(dport=1)", "-k", "ip/udp(dport=2)", "--rate", "2000pps", "-T", "600"];
    let pty = Pty::start(&[&["generate", "--to", &to][..], &two].concat(), 80, 24);
    let screen = pty.wait("both are sent", |screen| sent(screen, "packet1") > 100 && sent(screen, "packet2") > 100);
    assert_eq!(row(&screen, "packet1")[1], "running");
    for key in ["+", " ", "x"] {
        pty.press(key);
        pty.wait_for("name all of them, or");
        pty.press("?");
        pty.wait_for("to leave this page");
        pty.press("?");
    }
    pty.press("a ");
    pty.wait("both pause", |screen| row(screen, "packet1")[1] == "paused" && row(screen, "packet2")[1] == "paused");
    pty.press(" rx2\r");
    pty.wait("both resume, faster", |screen| {
        row(screen, "packet2")[1] == "running" && row(screen, "packet2")[2].starts_with("2000")
    });
    pty.press("x");
    pty.wait("both have stopped", |screen| {
        row(screen, "packet1")[1] == "stopped" && row(screen, "packet2")[1] == "stopped"
    });
    pty.press("cs");
    pty.wait("both restart", |screen| row(screen, "packet1")[1] == "running" && sent(screen, "packet1") > 10);
    pty.press("q");
    let (status, screen) = pty.end();
    assert!(status.success() && screen.contains("packets"), "{status}: {screen}");
}
