//! Shared by the tests of labs.
#![allow(dead_code)] // not every test file uses all of it

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use linerate_lab::{Lab, Link, LinkEnd, Plan, within};

/// Returns whether labs can be created here; prints a message if not. In CI root must be able to create them.
pub(crate) fn is_root(test: &str) -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    let possible = root && ip(&["netns", "list"]).is_some();
    assert!(possible || !root || std::env::var("CI").as_deref() != Ok("true"), "{test} may not be skipped in CI");
    if !possible {
        eprintln!("SKIPPED: {test} needs root and iproute2");
    }
    possible
}

/// Removes a lab when a test ends, however it ends.
pub(crate) struct Cleanup(pub String);

impl Cleanup {
    /// Returns the cleanup of a lab with a name that no other test uses.
    pub(crate) fn new(test: &str) -> Self {
        Self(format!("{test}-{}", std::process::id()))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = Lab::down(&self.0);
    }
}

/// Deletes a namespace that a test created itself.
pub(crate) struct Foreign(pub String);

impl Foreign {
    /// Creates it.
    pub(crate) fn new(name: String) -> Self {
        assert!(ip(&["netns", "add", &name]).is_some(), "cannot create namespace {name}");
        Self(name)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

/// Returns a plan of two hosts and one link without addresses.
pub(crate) fn pair(name: &str) -> Plan {
    Plan::from_links(name, vec![Link::new(LinkEnd::new("left", "eth0"), LinkEnd::new("right", "eth0"))]).unwrap()
}

/// Returns the output of `ip`; `None` if it fails.
pub(crate) fn ip(arguments: &[&str]) -> Option<String> {
    let output = Command::new("ip").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns what is left of lab `name`: namespaces, interfaces outside any namespace, files.
pub(crate) fn remains(name: &str, interfaces: &str) -> Vec<String> {
    let names = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let files = names("/run/netns").into_iter().chain(names("/run/linerate/lab"));
    let links = names("/sys/class/net").into_iter().filter(|link| link.contains(interfaces));
    files.filter(|file| file.contains(name)).chain(links).collect()
}

/// Returns the numbers of frames received and sent by an interface, as its namespace counts them.
pub(crate) fn frames(namespace: &str, interface: &str) -> (u64, u64) {
    let text = within(namespace, || fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).expect(interface);
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[1], numbers[9])
}

/// Returns the identity of the namespace of this name, to detect whether it was replaced.
pub(crate) fn identity(namespace: &str) -> Option<(u64, u64)> {
    fs::metadata(format!("/run/netns/{namespace}")).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
