//! Prints packets of ports, merged by time, in the format of tcpdump, and the bytes from each address:
//! `cargo run --example packets -- eth0,eth1 'not port 22'`.

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::net::IpAddr;

/// Returns the bytes on the wire by source address.
pub(crate) fn run(ports: &str, filter: &str, out: &mut impl Write) -> Result<HashMap<IpAddr, u64>, Box<dyn Error>> {
    let mut bytes = HashMap::new();
    let mut packets = linerate::open(ports)?.filter(filter)?.packets()?;
    while let Some(packet) = packets.next()? {
        if let Some([source, _]) = packet.addresses() {
            *bytes.entry(source).or_default() += u64::from(packet.wire_length());
        }
        writeln!(out, "{packet}")?;
    }
    let seen = packets.finish()?;
    writeln!(out, "{} packets, {} lost", seen.packets(), seen.lost())?;
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let ports = words.next().unwrap_or_else(|| "eth0".to_owned());
    for (source, bytes) in run(&ports, &words.next().unwrap_or_default(), &mut std::io::stdout())? {
        println!("{source}: {bytes} bytes");
    }
    Ok(())
}
