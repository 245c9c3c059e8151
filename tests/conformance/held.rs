//! Frames that are held out of order, changed, and sent on from where they lie: what a port promises that can do it.

use crate::conformance::backends::{Veth, receive, transmit, unique};
use crate::conformance::frames::{Frame, frames, origin};
use crate::conformance::wire::{PATIENCE, block_of};
use linerate_burst::{Count, Ledger};
use linerate_engine::clock::now;
use linerate_port::{Held, RxOptions, RxQueue, TxQueue};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// A sender, a port that holds what comes, one that sends it on, and who gets it.
struct Scene {
    name: &'static str,
    into: Box<dyn TxQueue>,
    rx: Box<dyn RxQueue>,
    out: Box<dyn TxQueue>,
    far: Box<dyn RxQueue>,
    /// Held frames lie at the same address at the far end.
    same_memory: bool,
    _keep: Box<dyn Any>,
}

#[test]
fn memory_in_chunks_holds_frames() {
    run(&|| {
        let [one, other] = [(); 2].map(|()| format!("mem:held{}?chunk=2048", unique()));
        let rx = |name: &str| receive(name, &RxOptions::default()).queues.remove(0);
        let tx = |name: &str| transmit(name, 0).queues.remove(0);
        let (into, rx_one, out, far) = (tx(&one), rx(&one), tx(&other), rx(&other));
        Some(Scene { name: "mem", into, rx: rx_one, out, far, same_memory: true, _keep: Box::new(()) })
    });
}

#[test]
fn xdp_that_writes_frames_itself_holds_them() {
    run(&|| {
        let veth = Veth::up(1, None)?.using("xdp", "xdp", "&mode=ring");
        let rx = |host: &str| receive(&veth.receiver(host, ""), &RxOptions::default()).queues.remove(0);
        let tx = |port: &str| transmit(port, 1).queues.remove(0);
        let (one, far) = (rx("right"), rx("left"));
        let (into, out) = (tx(&veth.sender("left").replace("xdp:", "packet:")), tx(&veth.sender("right")));
        Some(Scene { name: "xdp", into, rx: one, out, far, same_memory: false, _keep: Box::new(veth) })
    });
}

fn run(open: &dyn Fn() -> Option<Scene>) {
    for check in [
        frames_held_out_of_order_keep_their_bytes,
        what_cannot_be_spared_is_still_shown,
        frames_are_changed_where_they_lie_and_sent_on,
        submitted_frames_come_back_once,
        others_frames_are_not_lent,
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

    /// Waits until the holding port shows frames; how many.
    #[track_caller]
    fn shown(&mut self) -> usize {
        wait(self.rx.as_mut())
    }

    /// Holds these of the first `frames` shown, and consumes the others.
    fn hold(&mut self, frames: usize, indices: &[u32]) -> Vec<Held> {
        let mut held = Vec::new();
        assert_eq!(self.rx.holding().unwrap().hold(frames, indices, &mut held), frames, "{}", self.name);
        assert_eq!(held.len(), indices.len());
        held
    }

    fn release(&mut self, held: Held) {
        self.rx.holding().unwrap().release(&mut vec![held]);
    }

    fn bytes(&mut self, held: &mut Held) -> Vec<u8> {
        self.rx.holding().unwrap().bytes_mut(held).to_vec()
    }

    fn spare(&mut self) -> usize {
        self.rx.holding().unwrap().spare()
    }

    /// Submits all of it and gets what is done with.
    fn submit(&mut self, list: Vec<Held>) -> Vec<Held> {
        let region = self.rx.holding().unwrap().region();
        assert!(self.out.submitting().unwrap().attach(&region), "{}: sends from there", self.name);
        let (mut list, mut done) = (VecDeque::from(list), Vec::new());
        let deadline = Instant::now() + PATIENCE;
        while !list.is_empty() {
            self.out.submitting().unwrap().submit(&mut list).unwrap();
            self.out.flush(now()).unwrap();
            assert!(Instant::now() < deadline, "{}: it takes no frames", self.name);
        }
        self.out.submitting().unwrap().completed(&mut done);
        done
    }

    #[track_caller]
    /// What the far end got: as many frames as are expected, with their addresses.
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
        assert!(Instant::now() < deadline, "nothing comes");
        std::thread::sleep(crate::conformance::wire::PAUSE);
    }
}

/// While thousands of others pass, through memory that holds fewer, and in whatever order they are given back.
fn frames_held_out_of_order_keep_their_bytes(mut scene: Scene) {
    let list = frames(0, 20_000, &[60, 333, 1514]);
    let mut kept: HashMap<u32, Held> = HashMap::new();
    let mut seen = 0;
    for part in list.chunks(100) {
        scene.send(part);
        let until = seen + part.len();
        while seen < until {
            let shown = scene.shown();
            let indices: Vec<u32> =
                (0..shown as u32).filter(|index| (seen as u32 + index).is_multiple_of(37)).collect();
            let held = scene.hold(shown, &indices);
            for (index, mut one) in indices.iter().zip(held) {
                assert!(scene.rx.holding().unwrap().keep(&mut one), "{}: there is room for it", scene.name);
                kept.insert(seen as u32 + index, one);
            }
            seen += shown;
            // The newest half goes back first: what is older stays.
            let mut numbers: Vec<u32> = kept.keys().copied().collect();
            numbers.sort_unstable();
            for number in numbers.into_iter().skip(8).step_by(2) {
                let one = kept.remove(&number).unwrap();
                scene.release(one);
            }
        }
    }
    assert!(kept.len() >= 8);
    for (number, mut one) in kept {
        let bytes = scene.bytes(&mut one);
        assert!(bytes == list[number as usize].bytes, "{}: frame {number} has other bytes", scene.name);
        scene.release(one);
    }
    let mut ledger = Ledger::new();
    scene.rx.counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "{}: {ledger:#?}", scene.name);
    assert_eq!(ledger.total(Count::Delivered), 20_000, "{}: held frames are delivered", scene.name);
}

fn what_cannot_be_spared_is_still_shown(mut scene: Scene) {
    let most = scene.spare();
    assert!(most > 0);
    let list = frames(0, most as u32 + 10, &[60]);
    let mut held = Vec::new();
    for part in list[..most].chunks(64) {
        scene.send(part);
        let until = held.len() + part.len();
        while held.len() < until {
            let shown = scene.shown();
            held.extend(scene.hold(shown, &(0..shown as u32).collect::<Vec<_>>()));
        }
    }
    scene.send(&list[most..]);
    assert_eq!((held.len(), scene.spare()), (most, 0), "{}", scene.name);
    let shown = scene.shown();
    let first = scene.rx.fill(now()).unwrap().burst.frame(0).to_vec();
    assert_eq!(origin(&first), Some((0, most as u32)), "{}: what was refused is shown", scene.name);
    assert_eq!(scene.rx.holding().unwrap().hold(shown, &[0], &mut held), 0, "{}", scene.name);
    scene.rx.holding().unwrap().release(&mut held);
    assert_eq!((held.len(), scene.spare()), (0, most), "{}", scene.name);
    scene.hold(shown, &[0]).into_iter().for_each(|held| scene.release(held));
}

fn frames_are_changed_where_they_lie_and_sent_on(mut scene: Scene) {
    let list = frames(0, 30, &[60, 1514]);
    scene.send(&list);
    let (mut held, mut expected) = (Vec::new(), Vec::new());
    while held.len() < list.len() {
        let shown = scene.shown();
        held.extend(scene.hold(shown, &(0..shown as u32).collect::<Vec<_>>()));
    }
    let room = scene.rx.holding().unwrap().room();
    for (number, one) in held.iter_mut().enumerate() {
        let mut bytes = list[number].bytes.clone();
        if number % 3 == 0 {
            scene.rx.holding().unwrap().bytes_mut(one)[20..24].copy_from_slice(b"made");
            bytes[20..24].copy_from_slice(b"made");
        }
        if number % 5 == 0 {
            assert!(scene.rx.holding().unwrap().resize(one, 0, -10), "{}: shorter is possible", scene.name);
            bytes.truncate(bytes.len() - 10);
        }
        let grown = room.head.min(4) as usize;
        if number % 7 == 0 && grown > 0 {
            let queue = scene.rx.holding().unwrap();
            assert!(queue.resize(one, grown as i32, 0));
            queue.bytes_mut(one).copy_within(grown.., 0);
            let length = bytes.len();
            bytes.extend_from_within(length - grown..);
        }
        assert!(!scene.rx.holding().unwrap().resize(one, 1 << 20, 0), "{}: no such room", scene.name);
        assert_eq!(scene.bytes(one), bytes);
        expected.push(bytes);
    }
    let addresses: Vec<usize> =
        held.iter_mut().map(|one| scene.rx.holding().unwrap().bytes_mut(one).as_ptr() as usize).collect();
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

fn submitted_frames_come_back_once(mut scene: Scene) {
    let most = scene.spare();
    let mut back = 0;
    for round in 0..50 {
        scene.send(&frames(round, 100, &[60, 700]));
        let mut seen = 0;
        while seen < 100 {
            let shown = scene.shown();
            let held = scene.hold(shown, &(0..shown as u32).collect::<Vec<_>>());
            let mut done = scene.submit(held);
            scene.got(shown);
            scene.out.submitting().unwrap().completed(&mut done);
            back += done.len();
            scene.rx.holding().unwrap().release(&mut done);
            seen += shown;
        }
    }
    assert_eq!((back, scene.spare()), (5000, most), "{}", scene.name);
    let mut ledger = Ledger::new();
    scene.rx.counters(&mut ledger);
    scene.out.counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "{}: {ledger:#?}", scene.name);
    assert_eq!((ledger.total(Count::Sent), scene.out.sent().frames), (5000, 5000), "{}", scene.name);
}

/// A handle of another queue, or one that was made up, reaches nothing.
fn others_frames_are_not_lent(mut scene: Scene) {
    scene.send(&frames(0, 1, &[60]));
    scene.shown();
    let mut held = scene.hold(1, &[0]);
    let mut foreign = Held::new(held[0].desc, held[0].number() + 1);
    let queue = scene.rx.holding().unwrap();
    assert_eq!(queue.bytes_mut(&mut foreign), b"");
    queue.release(&mut vec![foreign]);
    held[0].desc.captured += 1;
    assert_eq!(queue.bytes_mut(&mut held[0]).len() % 61, 0);
    if !scene.same_memory {
        assert_eq!(scene.bytes(&mut held[0]), b"", "{}: beyond its end", scene.name);
    }
    held.into_iter().for_each(|held| scene.release(held));
}
