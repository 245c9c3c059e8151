//! Frames that are held out of order, changed and forwarded in place: the contract of ports with this capability.

use crate::conformance::backends::{Veth, receive, transmit, unique};
use crate::conformance::frames::{Frame, frames, origin};
use crate::conformance::wire::{PATIENCE, block_of};
use linerate_burst::{Count, Ledger};
use linerate_engine::clock::now;
use linerate_port::{HeldFrame, RxOptions, RxQueue, TxQueue};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Sender, port that holds frames, port that forwards them, and their receiver.
struct Scene {
    name: &'static str,
    into: Box<dyn TxQueue>,
    rx: Box<dyn RxQueue>,
    out: Box<dyn TxQueue>,
    far: Box<dyn RxQueue>,
    /// The held frames have the same address at the receiver.
    same_memory: bool,
    _keep: Box<dyn Any>,
}

#[test]
fn memory_in_chunks_holds_frames() {
    run(&|| {
        let [first, second] = [(); 2].map(|()| format!("mem:held{}?chunk=2048", unique()));
        let rx = |name: &str| receive(name, &RxOptions::default()).queues.remove(0);
        let tx = |name: &str| transmit(name, 0).queues.remove(0);
        let (into, rx_first, out, far) = (tx(&first), rx(&first), tx(&second), rx(&second));
        Some(Scene { name: "mem", into, rx: rx_first, out, far, same_memory: true, _keep: Box::new(()) })
    });
}

#[test]
fn xdp_in_ring_mode_holds_frames() {
    run(&|| {
        let veth = Veth::up(1, None)?.using("xdp", "xdp", "&mode=ring");
        let rx = |host: &str| receive(&veth.receiver(host, ""), &RxOptions::default()).queues.remove(0);
        let tx = |port: &str| transmit(port, 1).queues.remove(0);
        let (rx_right, far) = (rx("right"), rx("left"));
        let (into, out) = (tx(&veth.sender("left").replace("xdp:", "packet:")), tx(&veth.sender("right")));
        Some(Scene { name: "xdp", into, rx: rx_right, out, far, same_memory: false, _keep: Box::new(veth) })
    });
}

fn run(open: &dyn Fn() -> Option<Scene>) {
    for check in [
        frames_held_out_of_order_keep_their_bytes,
        frames_above_the_limit_stay_visible,
        frames_are_changed_in_place_and_forwarded,
        submitted_frames_are_returned_once,
        frames_of_others_are_not_accessible,
    ] {
        let Some(scene) = open() else { return };
        check(scene);
    }
}

impl Scene {
    fn send(&mut self, list: &[Frame]) {
        let block = block_of(list);
        let mut sent = 0;
        while sent < list.len() {
            sent += self.into.send(block.burst().slice(sent..list.len())).unwrap();
            assert!(self.into.flush(now()).is_ok());
        }
    }

    /// Waits until the holding port shows frames, and returns their number.
    #[track_caller]
    fn shown(&mut self) -> usize {
        wait(self.rx.as_mut())
    }

    /// Holds the frames at these indices of the first `frames` shown, and consumes the others.
    fn hold(&mut self, frames: usize, indices: &[u32]) -> Vec<HeldFrame> {
        let mut held = Vec::new();
        assert_eq!(self.rx.holding().unwrap().hold(frames, indices, &mut held), frames, "{}", self.name);
        assert_eq!(held.len(), indices.len());
        held
    }

    fn release(&mut self, held: HeldFrame) {
        self.rx.holding().unwrap().release(&mut vec![held]);
    }

    fn bytes(&mut self, held: &mut HeldFrame) -> Vec<u8> {
        self.rx.holding().unwrap().bytes_mut(held).to_vec()
    }

    fn spare(&mut self) -> usize {
        self.rx.holding().unwrap().spare()
    }

    /// Submits all frames, and returns the completed ones.
    fn submit(&mut self, list: Vec<HeldFrame>) -> Vec<HeldFrame> {
        let region = self.rx.holding().unwrap().region();
        assert!(self.out.submitting().unwrap().attach(&region), "{}: cannot send from this memory", self.name);
        let (mut list, mut done) = (VecDeque::from(list), Vec::new());
        let deadline = Instant::now() + PATIENCE;
        while !list.is_empty() {
            self.out.submitting().unwrap().submit(&mut list).unwrap();
            self.out.flush(now()).unwrap();
            assert!(Instant::now() < deadline, "{}: no frame is accepted", self.name);
        }
        self.out.submitting().unwrap().completed(&mut done);
        done
    }

    #[track_caller]
    /// Receives `count` frames with their addresses.
    fn got(&mut self, count: usize) -> Vec<(Vec<u8>, usize)> {
        let mut got = Vec::new();
        while got.len() < count {
            let shown = wait(self.far.as_mut());
            let head = self.far.fill(now()).unwrap();
            got.extend(head.burst.iter().take(shown).map(|(_, bytes)| (bytes.to_vec(), bytes.as_ptr() as usize)));
            self.far.consume(shown);
        }
        got
    }
}

#[track_caller]
fn wait(queue: &mut dyn RxQueue) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = queue.fill(now()).unwrap().burst.len();
        if shown > 0 {
            return shown;
        }
        assert!(Instant::now() < deadline, "no frame arrives");
        std::thread::sleep(crate::conformance::wire::PAUSE);
    }
}

/// Holds frames while thousands of others pass through smaller memory, and releases them in any order.
fn frames_held_out_of_order_keep_their_bytes(mut scene: Scene) {
    let list = frames(0, 20_000, &[60, 333, 1514]);
    let mut kept: HashMap<u32, HeldFrame> = HashMap::new();
    let mut seen = 0;
    for part in list.chunks(100) {
        scene.send(part);
        let until = seen + part.len();
        while seen < until {
            let shown = scene.shown();
            let indices: Vec<u32> =
                (0..shown as u32).filter(|index| (seen as u32 + index).is_multiple_of(37)).collect();
            let held = scene.hold(shown, &indices);
            for (index, mut frame) in indices.iter().zip(held) {
                assert!(scene.rx.holding().unwrap().keep(&mut frame), "{}: no room for a held frame", scene.name);
                kept.insert(seen as u32 + index, frame);
            }
            seen += shown;
            // The newer half is released first; older frames stay held.
            let mut numbers: Vec<u32> = kept.keys().copied().collect();
            numbers.sort_unstable();
            for number in numbers.into_iter().skip(8).step_by(2) {
                let frame = kept.remove(&number).unwrap();
                scene.release(frame);
            }
        }
    }
    assert!(kept.len() >= 8);
    for (number, mut frame) in kept {
        let bytes = scene.bytes(&mut frame);
        assert!(bytes == list[number as usize].bytes, "{}: frame {number} has other bytes", scene.name);
        scene.release(frame);
    }
    let mut ledger = Ledger::new();
    scene.rx.counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "{}: {ledger:#?}", scene.name);
    assert_eq!(ledger.total(Count::Delivered), 20_000, "{}: held frames are not counted as delivered", scene.name);
}

fn frames_above_the_limit_stay_visible(mut scene: Scene) {
    let capacity = scene.spare();
    assert!(capacity > 0);
    let list = frames(0, capacity as u32 + 10, &[60]);
    let mut held = Vec::new();
    for part in list[..capacity].chunks(64) {
        scene.send(part);
        let until = held.len() + part.len();
        while held.len() < until {
            let shown = scene.shown();
            held.extend(scene.hold(shown, &(0..shown as u32).collect::<Vec<_>>()));
        }
    }
    scene.send(&list[capacity..]);
    assert_eq!((held.len(), scene.spare()), (capacity, 0), "{}", scene.name);
    let shown = scene.shown();
    let first = scene.rx.fill(now()).unwrap().burst.frame(0).to_vec();
    assert_eq!(
        origin(&first),
        Some((0, capacity as u32)),
        "{}: the frame that was not held is not visible",
        scene.name
    );
    assert_eq!(scene.rx.holding().unwrap().hold(shown, &[0], &mut held), 0, "{}", scene.name);
    scene.rx.holding().unwrap().release(&mut held);
    assert_eq!((held.len(), scene.spare()), (0, capacity), "{}", scene.name);
    scene.hold(shown, &[0]).into_iter().for_each(|held| scene.release(held));
}

fn frames_are_changed_in_place_and_forwarded(mut scene: Scene) {
    let list = frames(0, 30, &[60, 1514]);
    scene.send(&list);
    let (mut held, mut expected) = (Vec::new(), Vec::new());
    while held.len() < list.len() {
        let shown = scene.shown();
        held.extend(scene.hold(shown, &(0..shown as u32).collect::<Vec<_>>()));
    }
    let room = scene.rx.holding().unwrap().room();
    for (number, frame) in held.iter_mut().enumerate() {
        let mut bytes = list[number].bytes.clone();
        if number % 3 == 0 {
            scene.rx.holding().unwrap().bytes_mut(frame)[20..24].copy_from_slice(b"made");
            bytes[20..24].copy_from_slice(b"made");
        }
        if number % 5 == 0 {
            assert!(scene.rx.holding().unwrap().resize(frame, 0, -10), "{}: cannot shrink a frame", scene.name);
            bytes.truncate(bytes.len() - 10);
        }
        let grown = room.head.min(4) as usize;
        if number % 7 == 0 && grown > 0 {
            let queue = scene.rx.holding().unwrap();
            assert!(queue.resize(frame, grown as i32, 0));
            queue.bytes_mut(frame).copy_within(grown.., 0);
            let length = bytes.len();
            bytes.extend_from_within(length - grown..);
        }
        assert!(!scene.rx.holding().unwrap().resize(frame, 1 << 20, 0), "{}: frame grew above the limit", scene.name);
        assert_eq!(scene.bytes(frame), bytes);
        expected.push(bytes);
    }
    let addresses: Vec<usize> =
        held.iter_mut().map(|frame| scene.rx.holding().unwrap().bytes_mut(frame).as_ptr() as usize).collect();
    let mut done = scene.submit(held);
    let got = scene.got(30);
    assert!(got.iter().map(|(bytes, _)| bytes).eq(&expected), "{}: other bytes arrived", scene.name);
    if scene.same_memory {
        assert!(got.iter().map(|(_, address)| address).eq(&addresses), "{}: frames were copied", scene.name);
    }
    scene.out.submitting().unwrap().completed(&mut done);
    assert_eq!(done.len(), 30);
    scene.rx.holding().unwrap().release(&mut done);
}

fn submitted_frames_are_returned_once(mut scene: Scene) {
    let capacity = scene.spare();
    let mut returned = 0;
    for round in 0..50 {
        scene.send(&frames(round, 100, &[60, 700]));
        let mut seen = 0;
        while seen < 100 {
            let shown = scene.shown();
            let held = scene.hold(shown, &(0..shown as u32).collect::<Vec<_>>());
            let mut done = scene.submit(held);
            scene.got(shown);
            scene.out.submitting().unwrap().completed(&mut done);
            returned += done.len();
            scene.rx.holding().unwrap().release(&mut done);
            seen += shown;
        }
    }
    assert_eq!((returned, scene.spare()), (5000, capacity), "{}", scene.name);
    let mut ledger = Ledger::new();
    scene.rx.counters(&mut ledger);
    scene.out.counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "{}: {ledger:#?}", scene.name);
    assert_eq!((ledger.total(Count::Sent), scene.out.sent().frames), (5000, 5000), "{}", scene.name);
}

/// Handles of another queue and forged handles give no access.
fn frames_of_others_are_not_accessible(mut scene: Scene) {
    scene.send(&frames(0, 1, &[60]));
    scene.shown();
    let mut held = scene.hold(1, &[0]);
    let mut foreign = HeldFrame::new(held[0].desc, held[0].number() + 1);
    let queue = scene.rx.holding().unwrap();
    assert_eq!(queue.bytes_mut(&mut foreign), b"");
    queue.release(&mut vec![foreign]);
    held[0].desc.captured += 1;
    assert_eq!(queue.bytes_mut(&mut held[0]).len() % 61, 0);
    if !scene.same_memory {
        assert_eq!(scene.bytes(&mut held[0]), b"", "{}: access after the end of the frame", scene.name);
    }
    held.into_iter().for_each(|held| scene.release(held));
}
