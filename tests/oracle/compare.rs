//! Plays a script to both receivers, and compares their answers.

use crate::oracle::differences::{self, Both};
use crate::oracle::endpoint::Ours;
use crate::oracle::kernel::Kernel;
use crate::oracle::peer::{Reply, Seg};
use crate::oracle::replies::{Answers, FinState};
use crate::oracle::script::{Script, Step, View, byte, data};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Max segments that fill a window.
const MAX_FILL: usize = 1000;

/// Kernel to compare with, and the number of known differences seen.
pub(super) struct Comparison {
    kernel: Kernel,
    port: u16,
    seen: BTreeMap<&'static str, u64>,
}

/// One of the receivers, as its peer sees it.
struct Side {
    view: View,
    fin_state: FinState,
}

impl Comparison {
    /// Starts the kernel; reports a skip and returns `None` where no network namespaces can be created.
    pub(super) fn up() -> Option<Comparison> {
        Some(Comparison { kernel: Kernel::up()?, port: 10_000, seen: BTreeMap::new() })
    }

    /// Prints the known differences seen.
    pub(super) fn report(&self) {
        let seen: Vec<String> = self.seen.iter().map(|(name, times)| format!("{name} {times}")).collect();
        println!("differences seen: {}", seen.join(", "));
    }

    /// Plays a script. Fails with a trace if there is an unknown difference.
    pub(super) fn play(&mut self, script: &Script) -> Result<(), String> {
        self.port = if self.port == u16::MAX { 10_000 } else { self.port + 1 };
        self.kernel.start(self.port);
        let mut ours = Ours::new();
        let mut sides = [(); 2].map(|()| Side { view: View::new(script, self.port), fin_state: FinState::default() });
        let mut trace =
            format!("script {:?}, {:?}, IPv{}\n", script.name, script.offer, if script.is_v6 { 6 } else { 4 });
        for (number, step) in script.steps.iter().enumerate() {
            let before = sides[0].view.clone();
            let [ours_side, other] = &mut sides;
            let ours_answers = ours_side.step(step, &mut ours);
            let kernel_answers = other.step(step, &mut self.kernel);
            let _ = writeln!(trace, "{step:?}\n    ours   {ours_answers:?}\n    kernel {kernel_answers:?}");
            if ours_answers == kernel_answers {
                continue;
            }
            let received = ours.received();
            let both =
                Both { script, number, step, before: &before, received, ours: ours_answers, kernel: kernel_answers };
            let Some(found) = differences::of(both) else { return Err(trace) };
            found.iter().for_each(|difference| *self.seen.entry(difference.name).or_default() += 1);
            if found.iter().any(|difference| difference.forks) {
                return self.same_bytes(&ours, false).map_err(|why| trace + &why);
            }
        }
        let is_even = !script.steps.contains(&Step::Fill);
        self.same_bytes(&ours, is_even).map_err(|why| trace + &why)
    }

    /// Compares the received bytes with the stream and, if `is_even`, their number and the ending.
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

/// Receiver of segments.
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

impl Side {
    fn step(&mut self, step: &Step, receiver: &mut impl Receiver) -> Answers {
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
        Answers::of(&replies, &mut self.view, &mut self.fin_state)
    }

    /// Fills the window; the answer contains only that it is closed.
    fn fill(&mut self, receiver: &mut impl Receiver) -> Answers {
        let (mut sent, mut is_closed) = (self.view.next, false);
        for _ in 0..MAX_FILL {
            let len = (self.view.edge - sent).clamp(0, 1000);
            let replies = if len > 0 {
                let seg = self.view.build(&data(sent, len as usize));
                sent += len;
                receiver.step(Some(&seg))
            } else {
                receiver.wait()
            };
            is_closed = Answers::of(&replies, &mut self.view, &mut self.fin_state).is_closed;
            if is_closed {
                break;
            }
        }
        // A kernel short of memory closes its window early.
        self.view.edge = self.view.next;
        self.view.base = self.view.next;
        Answers { is_closed, ..Answers::default() }
    }
}

#[test]
fn documented_differences_are_those_in_the_code() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tcp.md")).expect("docs/tcp.md");
    let (_, table) = page.split_once("| difference |").expect("a table");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let named: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect();
    let known: Vec<&str> = differences::DIFFERENCES.iter().map(|difference| difference.name).collect();
    assert_eq!(named, known);
}
