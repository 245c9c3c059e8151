//! Tests against other programs: DPDK, Snort's libdaq, the kernel's TCP, collectors, brokers, databases, browsers.

mod dpdk;
mod fleet;
mod ipfix;
mod oracle;
mod serve;
mod tls;
