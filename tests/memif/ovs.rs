//! Open vSwitch with DPDK between two linerate ports, run by `scripts/ovs`: the server, which sends on its second ring.
//!
//! It drops packets without buffering: those for a port that is not connected yet, or whose reader is a ring late.
//! So both ends are in this process, connect before packets are counted, and never more packets are in flight than a
//! ring holds.

use super::peer::Port;
use crate::memif::PROCESSOR;
use linerate_burst::{Block, Desc, Nanos};
use linerate_tests::support::{Scratch, has_peer, has_tools, is_root, skip, wait_until};
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLockWriteGuard};

/// Max packets in flight: a ring has 1024 slots.
const WINDOW: usize = 256;

/// Running Open vSwitch, stopped on drop. It may crash when a peer disconnects while packets flow, so the ports are
/// closed first. One of its threads busy-polls.
struct Ovs {
    folder: Scratch,
    _processor: RwLockWriteGuard<'static, ()>,
}

fn script(words: &[&str]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let output = Command::new(root.join("scripts/ovs")).args(words).current_dir(root).output().expect("scripts/ovs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(error) }
}

impl Ovs {
    fn up() -> Option<Ovs> {
        if !is_root() {
            skip("Open vSwitch with DPDK needs root");
            return None;
        }
        if !has_peer(true, "Open vSwitch with DPDK") || !has_tools(&["apt-get", "taskset"]) {
            return None;
        }
        if let Err(error) = script(&["unpack"]) {
            skip(&format!("Open vSwitch with DPDK is not available: {error}"));
            return None;
        }
        let ovs = Ovs { folder: Scratch::new(), _processor: PROCESSOR.write().unwrap_or_else(PoisonError::into_inner) };
        script(&["up", &ovs.folder.file("")]).expect("Open vSwitch starts");
        Some(ovs)
    }

    /// Connects to both of its ports, and waits until each forwards to the other.
    fn ends(&self) -> [Port; 2] {
        let port = |number| self.folder.file(&format!("m{number}.sock"));
        let mut ends = [0, 1].map(|number| Port::open(&format!("memif:{}?rings-in=2&rings-out=1", port(number))));
        for from in [0, 1] {
            let probe = frame(u32::MAX, 60);
            wait_until("Open vSwitch forwards packets", || {
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
        script(&["down", &self.folder.file("")]).expect("Open vSwitch stops");
    }
}

/// Builds a frame with this number and length: unused addresses, EtherType for local experiments.
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0x4c, 0x52, 0, 0, 1, 2, 0x4c, 0x52, 0, 0, 2, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

/// Sends frames, and returns the number accepted.
fn send(end: &mut Port, frames: &[Vec<u8>]) -> usize {
    let mut block = Block::new(frames.iter().map(|frame| frame.len() + 16).sum(), frames.len().max(1));
    for frame in frames {
        assert!(block.push(&Desc::new(Nanos(1), 0, frame.len() as u32), frame));
    }
    end.tx.queues[0].send(block.burst()).unwrap()
}

/// Sends all frames at one end, and returns what the other end received by the time that `expected` frames arrived.
fn forward(ends: &mut [Port; 2], from: usize, frames: &[Vec<u8>], expected: usize) -> Vec<Vec<u8>> {
    let (mut sent, mut got) = (0, Vec::new());
    let is_probe = |frame: &Vec<u8>| frame[12..18] == [0x88, 0xb5, 0xff, 0xff, 0xff, 0xff];
    wait_until("all frames have arrived", || {
        // Packets dropped by its rules leave no trace, so the number in flight is unknown.
        let in_flight = if expected == frames.len() { sent - got.len() } else { 0 };
        let room = (WINDOW - in_flight).min(frames.len() - sent);
        sent += send(&mut ends[from], &frames[sent..sent + room]);
        ends[from].settle();
        got.extend(ends[1 - from].step().unwrap().into_iter().filter(|frame| !is_probe(frame)));
        sent == frames.len() && got.len() >= expected
    });
    got
}

/// Forwards in both directions, with every byte and in order; then with other rules.
#[test]
fn open_vswitch_forwards_all_packets() {
    let Some(ovs) = Ovs::up() else { return };
    let mut ends = ovs.ends();
    let frames: Vec<Vec<u8>> = (0..4000).map(|number| frame(number, 60 + number as usize * 97 % 1455)).collect();
    for from in [0, 1] {
        let got = forward(&mut ends, from, &frames, frames.len());
        let differs = got.iter().zip(&frames).position(|(got, sent)| got != sent);
        assert_eq!((differs, got.len()), (None, frames.len()), "from end {from}");
    }
    let rules = ovs.folder.file("other");
    std::fs::write(&rules, "in_port=1,dl_dst=02:4c:52:00:00:01,actions=mod_dl_dst:02:4c:52:00:00:07,output:2\n")
        .unwrap();
    script(&["flows", &ovs.folder.file(""), &rules]).unwrap();
    let mut some = frames[..200].to_vec();
    some.iter_mut().step_by(2).for_each(|frame| frame[5] = 9);
    let got = forward(&mut ends, 0, &some, 100);
    let mut expected_frames: Vec<Vec<u8>> = some.into_iter().skip(1).step_by(2).collect();
    expected_frames.iter_mut().for_each(|frame| frame[5] = 7);
    assert!(got == expected_frames, "{} packets arrived with other rules", got.len());
}
