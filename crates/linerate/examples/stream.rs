//! Sends a stream, and accounts for every packet where it arrives: `cargo run --example stream -- mem:a mem:a`.
//! Instead of memory it works with `packet:eth1 packet:eth2` and a cable between them.

const STREAM: &str = r#"
[[stream]]
packet = "ip(src=10.0.0.1..10.0.0.9, dst=10.0.1.1)/udp(dport=53)"
size = "imix"
rate = "20kpps"
count = 5000
"#;

/// Returns the number of packets received.
pub(crate) fn run(to: &str, from: &str) -> Result<u64, linerate::Error> {
    let sent = linerate::send(to, STREAM)?.check(from)?.run()?;
    let arrived = sent.arrived().unwrap_or_default();
    println!("{} sent, {} received, {} lost", sent.packets(), arrived.counts.received, sent.lost());
    for (name, row) in sent.streams() {
        println!("{name}: {} lost, latency p99 {:?} ns", row.counts.lost, row.delay.latency_p99_ns);
    }
    Ok(arrived.counts.received)
}

fn main() -> Result<(), linerate::Error> {
    let mut words = std::env::args().skip(1);
    let to = words.next().unwrap_or_else(|| "mem:a".to_owned());
    run(&to, &words.next().unwrap_or_else(|| to.clone())).map(|_| ())
}
