//! Prints the flows of ports as they end: `cargo run --example flows -- trace.pcap 'not port 22'`.

use linerate::meter::{Config, Level};

/// Returns the number of records.
pub(crate) fn run(ports: &str, filter: &str) -> Result<u64, linerate::Error> {
    let config = Config { max_flows: 1 << 16, level: Level::Tcp, ..Config::default() };
    let mut records = 0;
    for flow in linerate::open(ports)?.filter(filter)?.flows(&config)? {
        let flow = flow?;
        let [from, to] = flow.ends.map(|end| std::net::SocketAddr::new(end.address, end.port));
        println!("{from} > {to}, protocol {}: {} packets, {} bytes", flow.protocol, flow.packets(), flow.frame_bytes());
        records += 1;
    }
    Ok(records)
}

fn main() -> Result<(), linerate::Error> {
    let mut words = std::env::args().skip(1);
    let ports = words.next().unwrap_or_else(|| "trace.pcap".to_owned());
    run(&ports, &words.next().unwrap_or_default()).map(|_| ())
}
