//! Open vSwitch with DPDK between two of our ends, as `scripts/ovs` runs it: it is the server, and sends by its second ring.
//!
//! What it has no room for it drops at once: frames for a port that nobody has connected to yet, or whose reader is a ring behind. So
//! both ends are in this process, joined before anything counts, and never more frames are under way than a ring holds.

use super::peer::Port;
use crate::memif::PROCESSOR;
use linerate_burst::{Block, Desc, Nanos};
use linerate_tests::support::{Scratch, has_tools, is_root, skip, wait_until};
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLockWriteGuard};

/// Frames under way at most: a ring has 1024.
const WINDOW: usize = 256;

/// It, until this goes. One that is left while frames flow may die: ends are left before it. A thread of it never rests.
struct Ovs {
    folder: Scratch,
    _processor: RwLockWriteGuard<'static, ()>,
}

fn script(words: &[&str]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let output = Command::new(root.join("scripts/ovs")).args(words).current_dir(root).output().expect("scripts/ovs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

impl Ovs {
    fn up() -> Option<Ovs> {
        if !is_root() {
            skip("Open vSwitch with DPDK needs root");
            return None;
        }
        if !has_tools(&["apt-get", "taskset"]) {
            return None;
        }
        if let Err(said) = script(&["unpack"]) {
            skip(&format!("Open vSwitch with DPDK is not there: {said}"));
            return None;
        }
        let ovs = Ovs { folder: Scratch::new(), _processor: PROCESSOR.write().unwrap_or_else(PoisonError::into_inner) };
        script(&["up", &ovs.folder.file("")]).expect("Open vSwitch starts");
        Some(ovs)
    }

    /// Our ends of its two ports, once what goes in by either comes out by the other.
    fn ends(&self) -> [Port; 2] {
        let port = |number| self.folder.file(&format!("m{number}.sock"));
        let mut ends = [0, 1].map(|number| Port::open(&format!("memif:{}?rings-in=2&rings-out=1", port(number))));
        for from in [0, 1] {
            let probe = frame(u32::MAX, 60);
            wait_until("Open vSwitch passes frames on", || {
                send(&mut ends[from], std::slice::from_ref(&probe));
                ends[from].settle();
                !ends[1 - from].step().unwrap().is_empty()
            });
        }
        ends
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        script(&["down", &self.folder.file("")]).expect("it ends");
    }
}

/// Of this number and length: addresses that nobody has, the EtherType for local experiments.
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0x4c, 0x52, 0, 0, 1, 2, 0x4c, 0x52, 0, 0, 2, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

/// How many of these an end takes now.
fn send(end: &mut Port, frames: &[Vec<u8>]) -> usize {
    let mut block = Block::new(frames.iter().map(|frame| frame.len() + 16).sum(), frames.len().max(1));
    for frame in frames {
        assert!(block.push(&Desc::new(Nanos(1), 0, frame.len() as u32), frame));
    }
    end.tx.queues[0].send(block.burst()).unwrap()
}

/// Sends all of these by one end, and returns what the other one had when so many had come.
fn pass(ends: &mut [Port; 2], from: usize, frames: &[Vec<u8>], expected: usize) -> Vec<Vec<u8>> {
    let (mut sent, mut got) = (0, Vec::new());
    let is_probe = |frame: &Vec<u8>| frame[12..18] == [0x88, 0xb5, 0xff, 0xff, 0xff, 0xff];
    wait_until("all frames have come", || {
        // What its rules drop is under way no longer, which nobody is told.
        let under_way = if expected == frames.len() { sent - got.len() } else { 0 };
        let room = (WINDOW - under_way).min(frames.len() - sent);
        sent += send(&mut ends[from], &frames[sent..sent + room]);
        ends[from].settle();
        got.extend(ends[1 - from].step().unwrap().into_iter().filter(|frame| !is_probe(frame)));
        sent == frames.len() && got.len() >= expected
    });
    got
}

/// Both ways, each frame with its bytes and in order; then by other rules.
#[test]
fn open_vswitch_passes_on_what_is_sent_to_it() {
    let Some(ovs) = Ovs::up() else { return };
    let mut ends = ovs.ends();
    let frames: Vec<Vec<u8>> = (0..4000).map(|number| frame(number, 60 + number as usize * 97 % 1455)).collect();
    for from in [0, 1] {
        let got = pass(&mut ends, from, &frames, frames.len());
        let differs = got.iter().zip(&frames).position(|(got, sent)| got != sent);
        assert_eq!((differs, got.len()), (None, frames.len()), "by end {from}");
    }
    let rules = ovs.folder.file("other");
    std::fs::write(&rules, "in_port=1,dl_dst=02:4c:52:00:00:01,actions=mod_dl_dst:02:4c:52:00:00:07,output:2\n")
        .unwrap();
    script(&["flows", &ovs.folder.file(""), &rules]).unwrap();
    let mut some = frames[..200].to_vec();
    some.iter_mut().step_by(2).for_each(|frame| frame[5] = 9);
    let got = pass(&mut ends, 0, &some, 100);
    let mut wanted: Vec<Vec<u8>> = some.into_iter().skip(1).step_by(2).collect();
    wanted.iter_mut().for_each(|frame| frame[5] = 7);
    assert!(got == wanted, "{} frames came by other rules", got.len());
}
