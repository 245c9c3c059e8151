//! Random scripts from seeds.

use crate::oracle::compare::Comparison;
use crate::oracle::script::{ACK, FIN, Offer, PSH, RST, SYN, Script, Segment, Stamp, Step, URG, bare, data, syn};

/// Number of scripts, unless `LINERATE_SCRIPTS` is set.
const SCRIPTS: u64 = 400;
/// Max number of times that a script with a difference is played.
const PLAYS: usize = 5;

#[test]
fn kernel_sends_the_same_answers_to_random_scripts() {
    let Some(mut comparison) = Comparison::up() else { return };
    let scripts = std::env::var("LINERATE_SCRIPTS").ok().and_then(|text| text.parse().ok()).unwrap_or(SCRIPTS);
    let mut found = Vec::new();
    for seed in 0..scripts {
        // A kernel delayed by scheduling may be late with its FIN; a real difference shows each time.
        let mut result = comparison.play(&script(seed));
        for _ in 1..PLAYS {
            result = result.or_else(|_| comparison.play(&script(seed)));
        }
        found.extend(result.err());
        if found.len() >= 5 {
            break;
        }
    }
    comparison.report();
    assert!(found.is_empty(), "unknown differences:\n{}", found.join("\n"));
}

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31) % end.max(1)
    }

    fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from).max(0) as u64 + 1) as i64
    }
}

fn script(seed: u64) -> Script {
    let mut random = Random(seed);
    let offer = [Offer::All, Offer::All, Offer::Sack, Offer::Nothing][random.below(4) as usize];
    let isn = if random.below(4) == 0 { u32::MAX - random.below(20_000) as u32 } else { random.below(1 << 32) as u32 };
    // End of the bytes sent so far.
    let mut high = 0;
    let mut steps: Vec<Step> = vec![syn().into(), bare(0, ACK).into()];
    for _ in 0..random.between(1, 40) {
        steps.push(segment(&mut random, &mut high).into());
    }
    // All bytes again, so that none is missing, and the FIN.
    let mut at = 0;
    while at < high {
        let len = random.between(1, 2000).min(high - at);
        steps.push(data(at, len as usize).into());
        at += len;
    }
    steps.extend([bare(high, FIN | ACK), bare(high + 1, ACK).acks(1)].map(Step::Send));
    let name = format!("seed {seed}");
    Script { name, isn, offer, is_v6: random.below(8) == 0, steps }
}

/// Returns a segment, usually one that a correct peer sends over a lossy link.
fn segment(random: &mut Random, high: &mut i64) -> Segment {
    let len = random.between(1, 1400);
    let push = if random.below(4) == 0 { PSH } else { 0 };
    let fresh = |at: i64, len: i64| data(at, len as usize).with(ACK | push);
    match random.below(100) {
        0..40 => {
            let at = *high;
            *high += len;
            fresh(at, len)
        }
        40..52 if *high < 20_000 => {
            let at = *high + random.between(1, 3000);
            *high = at + len;
            fresh(at, len)
        }
        40..80 => {
            let at = random.between(0, *high);
            fresh(at, len.min(*high - at).max(1)).capped(*high)
        }
        80..82 => bare(*high, SYN | (random.below(2) as u16 * ACK)),
        82..84 => bare(*high + random.between(1, 20_000), RST),
        84..86 => bare(random.between(-5, *high), ACK),
        86..88 => data(random.between(200_000, 2_000_000), 10).at_edge(),
        88..91 => fresh(random.between(0, *high), 1).capped(*high).stamped(Stamp::Ago(random.between(1, 1000) as u32)),
        91..93 => fresh(random.between(0, *high), 20).capped(*high).acks(random.between(1, 100_000)),
        93..95 => fresh(random.between(0, *high), 20).capped(*high).with(ACK | URG),
        95..97 => fresh(random.between(0, *high), 20).capped(*high).with(push),
        _ => data(random.between(-3000, 0), len as usize).capped(*high),
    }
}

impl Segment {
    /// Cuts the segment at the end of the bytes sent so far.
    fn capped(self, high: i64) -> Segment {
        match self.at {
            crate::oracle::script::At::Stream(at) => Segment { len: self.len.min((high - at).max(0) as usize), ..self },
            crate::oracle::script::At::Window(_) => self,
        }
    }
}
