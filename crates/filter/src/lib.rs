//! pcap-filter text, compiled by libpcap and run in the kernel or here
