//! Labs on the real kernel: created, repaired, refused and removed.

use std::net::{IpAddr, UdpSocket};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Cleanup, Foreign, frames, identity, ip, is_root, pair, remains};
use linerate_lab::{Lab, LabError, Outcome, Plan, TemporaryLab, list, within};

#[test]
fn up_creates_the_plan_and_down_removes_everything() {
    if !is_root("up and down") {
        return;
    }
    let cleanup = Cleanup::new("updown");
    let name = cleanup.0.as_str();
    let link = "left:eth0,right:port.1,queues=4,mtu=22000".parse().unwrap();
    let plan = Plan::from_links(name, vec![link, "left:in,left:out".parse().unwrap()]).unwrap();
    let lab = Lab::up(&plan).unwrap();
    assert_eq!(lab.outcome(), Outcome::Made);
    assert_eq!(lab.host("left").unwrap(), format!("{name}-left"));
    assert!(lab.host("middle").unwrap_err().to_string().contains("left, right"));
    assert!(ip(&["netns", "list"]).unwrap().contains(&format!("{name}-right")));
    for (host, interface) in [("left", "eth0"), ("right", "port.1")] {
        let command = lab.exec(host, "ip").unwrap().args(["-d", "-j", "link", "show", "dev", interface]).output();
        let shown: serde_json::Value = serde_json::from_slice(&command.unwrap().stdout).unwrap();
        let number = |field: &str| shown[0][field].as_u64().unwrap();
        assert_eq!((number("num_rx_queues"), number("num_tx_queues"), number("mtu")), (4, 4, 22_000));
        assert_eq!(shown[0]["operstate"], "UP");
        assert_ne!(number("ifindex"), number("link_index"), "equal indexes would come up late");
    }
    let summary = list().unwrap().into_iter().find(|summary| summary.name == name).unwrap();
    assert!(summary.alive && summary.creator_alive && !summary.temporary, "{summary:?}");
    assert_eq!((summary.hosts, summary.links), (2, 2));
    assert_eq!(Lab::open(name).unwrap().plan(), &plan);

    assert!(Lab::down(name).unwrap().occupied.is_empty());
    assert_eq!(remains(name, "port.1"), [""; 0]);
    assert!(matches!(Lab::down(name), Err(LabError::NoSuchLab { .. })));
    assert!(matches!(Lab::open(name), Err(LabError::NoSuchLab { .. })));
}

#[test]
fn repeated_up_only_repairs_missing_parts() {
    if !is_root("up again") {
        return;
    }
    let cleanup = Cleanup::new("again");
    let name = cleanup.0.as_str();
    let link = "left:eth0=10.9.0.1/24,right:eth0=10.9.0.2/24".parse().unwrap();
    let plan = Plan::from_links(name, vec![link]).unwrap();
    Lab::up(&plan).unwrap();
    let namespaces = [format!("{name}-left"), format!("{name}-right")];
    let made = namespaces.clone().map(|namespace| identity(&namespace));
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Unchanged);

    let left = namespaces[0].as_str();
    ip(&["-n", left, "link", "set", "dev", "eth0", "down"]).unwrap();
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Repaired);
    ip(&["-n", left, "address", "flush", "dev", "eth0"]).unwrap();
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Repaired);
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Unchanged);
    assert_eq!(namespaces.clone().map(|namespace| identity(&namespace)), made, "a repair keeps the namespaces");

    ip(&["-n", left, "link", "delete", "dev", "eth0"]).unwrap();
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Remade);
    ip(&["netns", "delete", left]).unwrap();
    assert!(matches!(Lab::open(name), Err(LabError::NoSuchLab { .. })));
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Remade);
    assert_eq!(Lab::up(&plan).unwrap().outcome(), Outcome::Unchanged);

    let other = pair(name);
    let before = namespaces.clone().map(|namespace| identity(&namespace));
    let error = Lab::up(&other).unwrap_err();
    assert!(error.to_string().contains(&format!("linerate lab down --name {name}")), "{error}");
    assert_eq!(namespaces.map(|namespace| identity(&namespace)), before, "a refused plan changes nothing");
}

#[test]
fn foreign_objects_are_rejected_and_unchanged() {
    if !is_root("foreign namespaces") {
        return;
    }
    let cleanup = Cleanup::new("foreign");
    let name = cleanup.0.as_str();
    let foreign = Foreign::new(format!("{name}-right"));
    let before = identity(&foreign.0).unwrap();
    let error = Lab::up(&pair(name)).unwrap_err();
    assert!(matches!(&error, LabError::ForeignNamespace { namespace, .. } if *namespace == foreign.0), "{error}");
    assert_eq!(identity(&foreign.0), Some(before));
    assert_eq!(remains(name, "no-interface"), [foreign.0.as_str()]);

    // Another namespace under a name that the lab had before.
    drop(foreign);
    Lab::up(&pair(name)).unwrap();
    ip(&["netns", "delete", &format!("{name}-left")]).unwrap();
    let foreign = Foreign::new(format!("{name}-left"));
    let before = identity(&foreign.0).unwrap();
    assert!(matches!(Lab::up(&pair(name)), Err(LabError::ForeignNamespace { .. })));
    assert_eq!(identity(&foreign.0), Some(before));
    let _ = Lab::down(name);
    assert_eq!(remains(name, "no-interface"), [foreign.0.as_str()]);
    assert_eq!(identity(&foreign.0), Some(before));
}

#[test]
fn labs_with_colliding_namespace_names_stay_separate() {
    if !is_root("equal namespace names") {
        return;
    }
    let outer = Cleanup::new("meet");
    let inner = Cleanup(format!("{}-a", outer.0));
    let plan = |name: &str, host: &str| Plan::from_links(name, vec![format!("{host}:e0,{host}:e1").parse().unwrap()]);
    Lab::up(&plan(&outer.0, "a-b").unwrap()).unwrap();
    let error = Lab::up(&plan(&inner.0, "b").unwrap()).unwrap_err().to_string();
    assert!(error.contains(&format!("belongs to lab {}", outer.0)), "{error}");
    assert!(Lab::open(&outer.0).is_ok());
}

#[test]
fn a_lab_without_addresses_is_silent() {
    if !is_root("silence") {
        return;
    }
    let lab = TemporaryLab::up(&pair("silent")).unwrap();
    thread::sleep(Duration::from_millis(1500));
    for host in ["left", "right"] {
        let disabled = || std::fs::read_to_string("/proc/sys/net/ipv6/conf/eth0/disable_ipv6");
        if let Ok(disabled) = within(lab.host(host).unwrap(), disabled).unwrap() {
            assert_eq!(disabled.trim(), "1", "IPv6 of {host} is off");
        }
        assert_eq!(frames(lab.host(host).unwrap(), "eth0"), (0, 0), "frames received and sent by {host}");
    }
}

#[test]
fn hosts_with_addresses_reach_each_other_and_are_silent_otherwise() {
    if !is_root("addresses") {
        return;
    }
    let link = "left:eth0=10.9.1.1/24+fd09::1/64,right:eth0=10.9.1.2/24+fd09::2/64".parse().unwrap();
    let lab = TemporaryLab::up(&Plan::from_links("addresses", vec![link]).unwrap()).unwrap();
    // The multicast reports of new IPv6 addresses have passed.
    let before = frames(lab.host("right").unwrap(), "eth0");
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(frames(lab.host("right").unwrap(), "eth0"), before, "unsolicited frames");

    for (left, right) in [("10.9.1.1", "10.9.1.2"), ("fd09::1", "fd09::2")] {
        let bind = |host: &str, address: &str| {
            let address: IpAddr = address.parse().unwrap();
            within(lab.host(host).unwrap(), || UdpSocket::bind((address, 0))).unwrap().unwrap()
        };
        let (left, right) = (bind("left", left), bind("right", right));
        right.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        left.send_to(b"hello", right.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = right.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"hello"[..], left.local_addr().unwrap()));
    }
}

#[test]
fn offloads_are_disabled_on_request() {
    if !is_root("offloads") {
        return;
    }
    let links = ["left:on,right:on", "left:off,right:off,offloads=off"].map(|link| link.parse().unwrap());
    let lab = match TemporaryLab::up(&Plan::from_links("offloads", links.to_vec()).unwrap()) {
        Err(error @ LabError::ProgramMissing { package: "ethtool", .. }) => {
            return eprintln!("SKIPPED: offloads: {error}");
        }
        lab => lab.unwrap(),
    };
    for (interface, state) in [("on", "tx-checksumming: on"), ("off", "tx-checksumming: off")] {
        let output = lab.exec("right", "ethtool").unwrap().args(["-k", interface]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(state), "{interface}: {text}");
    }
}

#[test]
fn remaining_processes_are_reported_and_lose_the_links() {
    if !is_root("occupied namespaces") {
        return;
    }
    let lab = TemporaryLab::up(&pair("occupied")).unwrap();
    let mut sleeper = lab.exec("right", "sleep").unwrap().arg("60").stdout(Stdio::null()).spawn().unwrap();
    let devices = || std::fs::read_to_string(format!("/proc/{}/net/dev", sleeper.id())).unwrap_or_default();
    let started = Instant::now();
    while !devices().contains("eth0") && started.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(5));
    }
    let (name, namespace) = (lab.name().to_owned(), lab.host("right").unwrap().to_owned());
    let saw_link = devices().contains("eth0");
    let down = lab.down();
    let (still_linked, alive) = (devices().contains("eth0"), sleeper.try_wait().unwrap().is_none());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();

    let occupied = down.unwrap().occupied;
    assert!(saw_link && !still_linked, "the link is gone while the process stays");
    assert!(alive, "the process was not ended");
    assert_eq!(occupied.len(), 1);
    assert_eq!(occupied[0].namespace, namespace);
    assert!(occupied[0].processes.contains(&sleeper.id()));
    assert_eq!(remains(&name, "no-interface"), [""; 0]);
}

#[test]
fn four_hosts_start_quickly_and_parallel_labs_do_not_collide() {
    if !is_root("time to be up") {
        return;
    }
    let links = ["a:e0,s:p0", "b:e0,s:p1", "c:e0,s:p2"].map(|link| link.parse().unwrap()).to_vec();
    let plan = Plan::from_links("soon", links).unwrap();
    let started = Instant::now();
    let lab = TemporaryLab::up(&plan).unwrap();
    let up = started.elapsed();
    let started = Instant::now();
    drop(lab);
    eprintln!("4 hosts, 3 links: up in {up:?}, down in {:?}", started.elapsed());
    // Far above the usual time: concurrent tests take the lock in turn.
    assert!(up < Duration::from_secs(20), "up took {up:?}");

    let labs: Vec<TemporaryLab> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| TemporaryLab::up(&plan).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for lab in &labs {
        assert!(Lab::open(lab.name()).is_ok(), "{}", lab.name());
    }
}
