//! Prints packets of ports, merged by time, in the format of tcpdump, and the bytes of each IP protocol:
//! `cargo run --example packets -- eth0,eth1 'not port 22'`.

use linerate::headers::Protocol;
use linerate::print::{Options, Printer};
use std::collections::HashMap;
use std::io::Write;

/// Returns the bytes on the wire by transport protocol.
pub(crate) fn run(
    ports: &str,
    filter: &str,
    out: &mut impl Write,
) -> Result<HashMap<Option<Protocol>, u64>, Box<dyn std::error::Error>> {
    let (mut bytes, mut line) = (HashMap::new(), Vec::new());
    let mut printer = Printer::new(Options::default());
    let mut packets = linerate::open(ports)?.filter(filter)?.packets()?;
    while let Some(packet) = packets.next()? {
        let protocol = packet.layers().transport().map(|layer| layer.protocol);
        *bytes.entry(protocol).or_default() += u64::from(packet.wire_length());
        line.clear();
        printer.line(&packet.frame(), &mut line);
        out.write_all(&line)?;
    }
    let seen = packets.finish()?;
    writeln!(out, "{} packets, {} lost", seen.packets(), seen.lost())?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let ports = words.next().unwrap_or_else(|| "eth0".to_owned());
    for (protocol, bytes) in run(&ports, &words.next().unwrap_or_default(), &mut std::io::stdout())? {
        println!("{protocol:?}: {bytes} bytes");
    }
    Ok(())
}
