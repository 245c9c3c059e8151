//! Captures packets of ports to a file, until they end or for 10 s:
//! `cargo run --example capture -- eth0 dns.pcapng 'udp port 53'`.

use std::time::Duration;

/// Returns the number of packets captured.
pub(crate) fn run(ports: &str, file: &str, filter: &str) -> Result<u64, linerate::Error> {
    let seen = linerate::open(ports)?.filter(filter)?.duration(Duration::from_secs(10)).write(file)?;
    println!("{} packets, {} lost", seen.packets(), seen.lost());
    // Accounts of packets that are not in the file, by cause.
    for account in seen.ledger().accounts() {
        println!("  {} {}: {:?}", account.stage.name(), account.subject, account.counts().collect::<Vec<_>>());
    }
    Ok(seen.packets())
}

fn main() -> Result<(), linerate::Error> {
    let mut words = std::env::args().skip(1);
    let mut word = |usual: &str| words.next().unwrap_or_else(|| usual.to_owned());
    run(&word("eth0"), &word("out.pcapng"), &word("")).map(|_| ())
}
