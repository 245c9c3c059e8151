//! SIGKILL at any time during `up`, and after it.

use std::env;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Cleanup, is_root, pair, remains};
use linerate_lab::{Lab, LabError, Outcome, Plan, TemporaryLab, list, sweep};

/// Name of the lab that the child creates.
const NAME: &str = "LINERATE_LAB_TEST_NAME";

/// Number of times a child is killed.
const ROUNDS: u32 = 40;

/// Four hosts, with unique interface names.
fn plan(name: &str) -> Plan {
    let link = |l: usize| format!("a:krash{l}=10.9.{l}.1/24,h{l}:krash{l},queues=2").parse().unwrap();
    Plan::from_links(name, (0..3).map(link).collect()).unwrap()
}

/// Body of the process that is killed.
#[test]
#[ignore = "run by the tests of this file, in a process of its own"]
fn child() {
    match env::var(NAME) {
        Ok(name) if name == "temporary" => {
            let lab = TemporaryLab::up(&pair("x")).unwrap();
            println!("\nup {}", lab.name());
            thread::sleep(Duration::from_secs(60));
        }
        Ok(name) => drop(Lab::up(&plan(&name)).unwrap()),
        Err(_) => eprintln!("SKIPPED: {NAME} is not set"),
    }
}

fn start(name: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env(NAME, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the progress visible from outside: none, a part, or all of the lab.
fn progress(name: &str) -> usize {
    list().unwrap().iter().find(|summary| summary.name == name).map_or(0, |lab| if lab.alive { 2 } else { 1 })
}

#[test]
fn lab_killed_during_up_can_be_taken_down() {
    if !is_root("killing up") {
        return;
    }
    let cleanup = Cleanup::new("killed");
    let name = cleanup.0.as_str();
    let started = Instant::now();
    assert!(start(name).wait().unwrap().success());
    let whole = started.elapsed();
    Lab::down(name).unwrap();

    let mut seen = [0; 3];
    for round in 0..ROUNDS {
        let mut child = start(name);
        thread::sleep(whole * round / ROUNDS);
        child.kill().unwrap();
        child.wait().unwrap();
        seen[progress(name)] += 1;
        if round % 4 == 3 {
            // Leftovers do not prevent creating the same lab.
            let outcome = Lab::up(&plan(name)).unwrap().outcome();
            assert!(matches!(outcome, Outcome::Made | Outcome::Remade | Outcome::Unchanged), "{outcome:?}");
        }
        match Lab::down(name) {
            Ok(_) | Err(LabError::NoSuchLab { .. }) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
        assert_eq!(remains(name, "krash"), [""; 0], "round {round}, after {:?}", whole * round / ROUNDS);
    }
    // A child of the killed process may still have been running: it must not create anything later.
    thread::sleep(Duration::from_millis(100));
    assert_eq!(remains(name, "krash"), [""; 0]);
    eprintln!("killed within {whole:?}: {} before, {} amid, {} after the work", seen[0], seen[1], seen[2]);
    assert!(seen[1] > 0, "no round killed it amid its work: {seen:?}");
}

#[test]
fn temporary_lab_is_removed_after_its_creator_is_killed() {
    if !is_root("sweeping") {
        return;
    }
    let mut child = start("temporary");
    let name = format!("t{}-0", child.id());
    let started = Instant::now();
    while progress(&name) < 2 && started.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(5));
    }
    let made = progress(&name);
    sweep().unwrap();
    let kept = progress(&name);
    child.kill().unwrap();
    child.wait().unwrap();
    let abandoned = list().unwrap().into_iter().find(|lab| lab.name == name);
    let next = TemporaryLab::up(&pair("x"));

    assert_eq!((made, kept), (2, 2), "it is up, and sweeping leaves it while its creator lives");
    if let Some(lab) = abandoned {
        assert!(lab.temporary && !lab.creator_alive, "{lab:?}");
    }
    assert_eq!(remains(&name, "no-interface"), [""; 0], "making the next removes it");
    drop(next.unwrap());
}
