//! Users that may attach.

use crate::raw::{self, RawWriter};
use crate::support::{Ring, unique};
use linerate_share::{Access, AttachOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Another user may attach only if it is named. A test that runs as root can act as that user, in a process of its own.
#[test]
fn named_users_may_attach() {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED: other users: needs root and setpriv");
        return;
    }
    const OTHER: u32 = 65_534;
    let attach = |access: Access| {
        let mut ring = Ring::with(&unique(), access, 4).unwrap();
        let mut child = Command::new("setpriv");
        child.args([format!("--reuid={OTHER}"), format!("--regid={OTHER}"), "--groups=4321".into()]);
        child.arg(std::env::current_exe().unwrap());
        child
            .args(["--exact", "users::attach_as_another", "--ignored", "--nocapture"])
            .env("LINERATE_RING", &ring.name);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        loop {
            ring.let_in();
            ring.write(1);
            if let Some(status) = child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert!(!attach(Access::default()));
    assert!(!attach(Access { users: vec![1000], groups: vec![1000], ..Access::default() }));
    assert!(attach(Access { users: vec![OTHER], groups: vec![], ..Access::default() }));
    assert!(attach(Access { users: vec![], groups: vec![OTHER], ..Access::default() }));
    assert!(attach(Access { users: vec![], groups: vec![4321], ..Access::default() }));
}

/// Another user cannot take the numbers reserved for root and the owner, nor attach at an unlimited rate.
#[test]
fn other_user_cannot_exhaust_seats_or_time() {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED: other users: needs root and setpriv");
        return;
    }
    let access = Access { users: vec![65_534], ..Access::default() };
    let mut ring = Ring::with(&unique(), access, 4).unwrap();
    let mut child = Command::new("setpriv");
    child.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "users::attach_as_often_as_can_be", "--ignored"]).env("LINERATE_RING", &ring.name);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut root, mut ticks) = (None, 0);
    let status = loop {
        let clients = ring.acceptor.step(ring.now);
        if ring.acceptor.refused() == 0 {
            clients.into_iter().for_each(|client| ring.writer.admit(client));
        } else {
            // A client that is not admitted releases its registration at once.
            drop(clients);
            root.get_or_insert_with(|| ring.lossy(2));
            // Less than a second passes, by the test's clock.
            if ticks < 20 && ring.writer.readers().len() > 1 {
                ring.tick();
                ticks += 1;
            }
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success() && root.is_some());
}

#[test]
#[ignore = "run by other_user_cannot_exhaust_seats_or_time, as another user"]
fn attach_as_often_as_can_be() {
    let Ok(name) = std::env::var("LINERATE_RING") else { return };
    let mut readers = Vec::new();
    let refused = loop {
        match AttachOptions::default().to(&name) {
            Ok(reader) => readers.push(reader),
            Err(error) => break error.to_string(),
        }
    };
    assert!(readers.len() == 48 && refused.contains("48 readers are attached"), "{} {refused}", readers.len());
    drop(readers);
    loop {
        match AttachOptions::default().to(&name) {
            Err(error) if error.to_string().contains("100 times per second") => return,
            _ => {}
        }
    }
}

/// Missing pages would be allocated by this process, to which the writer has no right; in huge pages they would be
/// SIGBUS.
#[test]
fn memory_with_holes_of_another_user_is_rejected() {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED: other users: needs root and setpriv");
        return;
    }
    let cases = [("ordinary", "another user, who may punch holes"), ("huge", "is in reserved huge pages")];
    let has_huge = huge().inspect_err(|error| eprintln!("SKIPPED: no huge pages here: {error}")).is_ok();
    for (control, part) in &cases[..1 + usize::from(has_huge)] {
        let name = unique();
        let mut child = Command::new("setpriv");
        child.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(std::env::current_exe().unwrap());
        child.args(["--exact", "users::write_as_another", "--ignored", "--nocapture"]);
        child.env("LINERATE_RING", &name).env("LINERATE_CONTROL", control);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.into_iter().any(|line| line.contains("listening")), "the writer did not start");
        let refused = AttachOptions { trust: true, ..AttachOptions::default() }.to(&name).err().unwrap().to_string();
        assert!(refused.contains(*part), "{refused}");
        child.wait().unwrap();
    }
}

fn huge() -> rustix::io::Result<OwnedFd> {
    memfd_create("huge", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
}

#[test]
#[ignore = "run by memory_with_holes_of_another_user_is_rejected, as another user"]
fn write_as_another() {
    let Ok(name) = std::env::var("LINERATE_RING") else { return };
    let mut writer = RawWriter::new(&name);
    if std::env::var("LINERATE_CONTROL").is_ok_and(|control| control == "huge") {
        fallocate(&writer.arena_fd, FallocateFlags::empty(), 0, writer.arena.bytes as u64).unwrap();
        fcntl_add_seals(&writer.arena_fd, SealFlags::FUTURE_WRITE).unwrap();
        writer.control_fd = huge().unwrap();
    }
    println!("listening");
    writer.welcome();
    // Long enough for the reader to examine it.
    for _ in 0..10_000 {
        if raw::read_message(writer.socket.as_ref().unwrap()).is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "run by named_users_may_attach, as another user"]
fn attach_as_another() {
    let Ok(name) = std::env::var("LINERATE_RING") else { return };
    let mut reader = AttachOptions::default().to(&name).unwrap_or_else(|error| panic!("{error}"));
    while reader.fill(1).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
