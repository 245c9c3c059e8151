//! A script played to both.

use crate::oracle::differences::{self, Both};
use crate::oracle::kernel::Kernel;
use crate::oracle::ours::Ours;
use crate::oracle::peer::{Reply, Seg};
use crate::oracle::said::{Said, Told};
use crate::oracle::script::{Script, Step, View, byte, data};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The most segments that fill a window.
const MOST: usize = 1000;

/// The kernel, and how often it differed.
pub(super) struct Judges {
    kernel: Kernel,
    port: u16,
    seen: BTreeMap<&'static str, u64>,
}

/// One of the two, as its peer sees it.
struct One {
    view: View,
    told: Told,
}

impl Judges {
    /// `None`, said aloud, where hosts cannot be made.
    pub(super) fn up() -> Option<Judges> {
        Some(Judges { kernel: Kernel::up()?, port: 10_000, seen: BTreeMap::new() })
    }

    /// Says which of the known differences there were.
    pub(super) fn tell(&self) {
        let seen: Vec<String> = self.seen.iter().map(|(name, times)| format!("{name} {times}")).collect();
        println!("differences seen: {}", seen.join(", "));
    }

    /// Plays a script; as text what was different and has no name.
    pub(super) fn play(&mut self, script: &Script) -> Result<(), String> {
        self.port = if self.port == u16::MAX { 10_000 } else { self.port + 1 };
        self.kernel.begin(self.port);
        let mut ours = Ours::new();
        let mut sides = [(); 2].map(|()| One { view: View::new(script, self.port), told: Told::default() });
        let mut trace =
            format!("script {:?}, {:?}, IPv{}\n", script.name, script.offer, if script.is_v6 { 6 } else { 4 });
        for (number, step) in script.steps.iter().enumerate() {
            let before = sides[0].view.clone();
            let [one, other] = &mut sides;
            let said = one.step(step, &mut ours);
            let kernel_said = other.step(step, &mut self.kernel);
            let _ = writeln!(trace, "{step:?}\n    ours   {said:?}\n    kernel {kernel_said:?}");
            if said == kernel_said {
                continue;
            }
            let (ours_said, there) = (said, ours.there());
            let both = Both { script, number, step, before: &before, there, ours: ours_said, kernel: kernel_said };
            let Some(found) = differences::of(both) else { return Err(trace) };
            found.iter().for_each(|difference| *self.seen.entry(difference.name).or_default() += 1);
            if found.iter().any(|difference| difference.forks) {
                return self.same_bytes(&ours, false).map_err(|why| trace + &why);
            }
        }
        let is_even = !script.steps.contains(&Step::Fill);
        self.same_bytes(&ours, is_even).map_err(|why| trace + &why)
    }

    /// What either got is what the stream is; and as much, where that can be.
    fn same_bytes(&mut self, ours: &Ours, is_even: bool) -> Result<(), String> {
        let (got, kernel_got) = (ours.got(), self.kernel.got());
        let wrong = |bytes: &[u8]| bytes.iter().zip(0..).position(|(got, at)| *got != byte(at));
        let (one, other) = (wrong(&got.0), wrong(&kernel_got.0));
        if one != other {
            let Some(name) = differences::of_bytes(one, other) else {
                return Err(format!("ours has a wrong byte at {one:?}, the kernel at {other:?}"));
            };
            *self.seen.entry(name).or_default() += 1;
        }
        if is_even && (got.0.len(), got.1) != (kernel_got.0.len(), kernel_got.1) {
            let [one, other] = [&got, &kernel_got].map(|(bytes, ending)| format!("{} bytes, {ending:?}", bytes.len()));
            return Err(format!("ours got {one}, the kernel {other}"));
        }
        Ok(())
    }
}

/// What takes segments.
trait Receiver {
    fn step(&mut self, segment: Option<&Seg>) -> Vec<Reply>;
    fn wait(&mut self) -> Vec<Reply>;
    fn read(&mut self, reads: bool);
}

macro_rules! receiver {
    ($type:ty) => {
        impl Receiver for $type {
            fn step(&mut self, segment: Option<&Seg>) -> Vec<Reply> {
                <$type>::step(self, segment)
            }

            fn wait(&mut self) -> Vec<Reply> {
                <$type>::wait(self)
            }

            fn read(&mut self, reads: bool) {
                <$type>::read(self, reads);
            }
        }
    };
}

receiver!(Ours);
receiver!(Kernel);

impl One {
    fn step(&mut self, step: &Step, receiver: &mut impl Receiver) -> Said {
        let replies = match step {
            Step::Send(segment) => {
                let seg = self.view.build(segment);
                receiver.step(Some(&seg))
            }
            Step::Fill => return self.fill(receiver),
            Step::Stop | Step::Go => {
                receiver.read(*step == Step::Go);
                receiver.step(None)
            }
        };
        Said::of(&replies, &mut self.view, &mut self.told)
    }

    /// Fills the window; all that is said of it is that it is closed.
    fn fill(&mut self, receiver: &mut impl Receiver) -> Said {
        let (mut sent, mut is_closed) = (self.view.next, false);
        for _ in 0..MOST {
            let len = (self.view.edge - sent).clamp(0, 1000);
            let replies = if len > 0 {
                let seg = self.view.build(&data(sent, len as usize));
                sent += len;
                receiver.step(Some(&seg))
            } else {
                receiver.wait()
            };
            is_closed = Said::of(&replies, &mut self.view, &mut self.told).is_closed;
            if is_closed {
                break;
            }
        }
        // A kernel that is short of memory closes its window before it is full.
        self.view.edge = self.view.next;
        self.view.base = self.view.next;
        Said { is_closed, ..Said::default() }
    }
}

#[test]
fn the_page_has_the_differences_that_there_may_be() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tcp.md")).expect("the page");
    let (_, table) = page.split_once("| difference |").expect("a table");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let named: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect();
    let known: Vec<&str> = differences::DIFFERENCES.iter().map(|difference| difference.name).collect();
    assert_eq!(named, known);
}
