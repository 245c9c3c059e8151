//! Test hosts on one machine: network namespaces joined by veth pairs
