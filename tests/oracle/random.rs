//! Scripts from seeds.

use crate::oracle::compare::Judges;
use crate::oracle::script::{ACK, FIN, Offer, PSH, RST, SYN, Script, Segment, Stamp, Step, URG, bare, data, syn};

/// How many, unless `LINERATE_SCRIPTS` says so.
const SCRIPTS: u64 = 400;
/// How often a script is played until it shows no difference.
const PLAYS: usize = 5;

#[test]
fn whatever_a_seed_makes_the_kernel_says_the_same() {
    let Some(mut judges) = Judges::up() else { return };
    let scripts = std::env::var("LINERATE_SCRIPTS").ok().and_then(|text| text.parse().ok()).unwrap_or(SCRIPTS);
    let mut found = Vec::new();
    for seed in 0..scripts {
        // A kernel that had to wait for a processor may be late with its end; a difference that is there is there each time.
        let mut said = judges.play(&script(seed));
        for _ in 1..PLAYS {
            said = said.or_else(|_| judges.play(&script(seed)));
        }
        found.extend(said.err());
        if found.len() >= 5 {
            break;
        }
    }
    judges.tell();
    assert!(found.is_empty(), "differences have no name:\n{}", found.join("\n"));
}

/// Numbers from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
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
    let mut chance = Chance(seed);
    let offer = [Offer::All, Offer::All, Offer::Sack, Offer::Nothing][chance.below(4) as usize];
    let isn = if chance.below(4) == 0 { u32::MAX - chance.below(20_000) as u32 } else { chance.below(1 << 32) as u32 };
    // How far the stream was sent.
    let mut high = 0;
    let mut steps: Vec<Step> = vec![syn().into(), bare(0, ACK).into()];
    for _ in 0..chance.between(1, 40) {
        steps.push(one(&mut chance, &mut high).into());
    }
    // Whatever is missing, and the end.
    let mut at = 0;
    while at < high {
        let len = chance.between(1, 2000).min(high - at);
        steps.push(data(at, len as usize).into());
        at += len;
    }
    steps.extend([bare(high, FIN | ACK), bare(high + 1, ACK).acks(1)].map(Step::Send));
    let name = format!("seed {seed}");
    Script { name, isn, offer, is_v6: chance.below(8) == 0, steps }
}

/// A segment; mostly one that an honest peer sends over a bad wire.
fn one(chance: &mut Chance, high: &mut i64) -> Segment {
    let len = chance.between(1, 1400);
    let push = if chance.below(4) == 0 { PSH } else { 0 };
    let fresh = |at: i64, len: i64| data(at, len as usize).with(ACK | push);
    match chance.below(100) {
        0..40 => {
            let at = *high;
            *high += len;
            fresh(at, len)
        }
        40..52 if *high < 20_000 => {
            let at = *high + chance.between(1, 3000);
            *high = at + len;
            fresh(at, len)
        }
        40..80 => {
            let at = chance.between(0, *high);
            fresh(at, len.min(*high - at).max(1)).capped(*high)
        }
        80..82 => bare(*high, SYN | (chance.below(2) as u16 * ACK)),
        82..84 => bare(*high + chance.between(1, 20_000), RST),
        84..86 => bare(chance.between(-5, *high), ACK),
        86..88 => data(chance.between(200_000, 2_000_000), 10).at_edge(),
        88..91 => fresh(chance.between(0, *high), 1).capped(*high).stamped(Stamp::Ago(chance.between(1, 1000) as u32)),
        91..93 => fresh(chance.between(0, *high), 20).capped(*high).acks(chance.between(1, 100_000)),
        93..95 => fresh(chance.between(0, *high), 20).capped(*high).with(ACK | URG),
        95..97 => fresh(chance.between(0, *high), 20).capped(*high).with(push),
        _ => data(chance.between(-3000, 0), len as usize).capped(*high),
    }
}

impl Segment {
    /// Nothing beyond what was sent.
    fn capped(self, high: i64) -> Segment {
        match self.at {
            crate::oracle::script::At::Stream(at) => Segment { len: self.len.min((high - at).max(0) as usize), ..self },
            crate::oracle::script::At::Window(_) => self,
        }
    }
}
