//! The search on simulated devices.

use linerate_measure::goal::NAMES;
use linerate_measure::{Goal, GoalResult, Limits, Search, Trial, Verdict, estimate};
use proptest::prelude::*;

const LIMITS: Limits = Limits { least: 10_000.0, greatest: 10_000_000.0 };
/// Limit of most of the devices.
const LIMIT: f64 = 1_000_000.0;

/// Random numbers by SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Cost and result of a search.
struct Run {
    trials: u64,
    seconds: f64,
    found: Vec<GoalResult>,
}

/// Runs a search; `device` returns the loss ratio for a load and a duration.
fn search(goals: &[Goal], mut device: impl FnMut(f64, f64) -> f64) -> Run {
    let mut search = Search::new(LIMITS, goals).unwrap();
    let (mut trials, mut seconds) = (0, 0.0);
    while let Some(ask) = search.next_trial() {
        assert_eq!(search.next_trial(), Some(ask), "a repeated call returns the same trial");
        assert!((LIMITS.least..=LIMITS.greatest).contains(&ask.load), "{ask:?}");
        search.add(Trial::new(ask, device(ask.load, ask.duration)));
        trials += 1;
        seconds += ask.duration;
        assert!(trials <= search.most_trials());
    }
    assert!(search.is_done());
    Run { trials, seconds, found: search.found() }
}

fn both() -> [Goal; 2] {
    [Goal::ndr(), Goal::pdr()]
}

fn hard(load: f64) -> f64 {
    (1.0 - LIMIT / load).max(0.0)
}

fn regular(found: &GoalResult) -> f64 {
    assert_eq!(found.verdict, Verdict::Regular, "{found:?}");
    let (lower, upper) = (found.lower.unwrap(), found.upper.unwrap());
    assert!(1.0 - lower / upper <= found.goal.width * (1.0 + 1e-9), "{found:?}");
    lower
}

/// Deterministic devices: cost and results of the two CSIT goals, compared with the library `MLRsearch` (its number of
/// trials is the second column).
#[test]
fn deterministic_devices_need_about_as_many_trials_as_with_the_library() {
    type Device = fn(f64, f64) -> f64;
    let devices: [(&str, u64, Device, f64, f64); 4] = [
        ("hard limit", 35, |load, _| hard(load), 998_332.0, 1_000_000.0),
        ("step", 38, |load, _| if load > LIMIT { 0.1 } else { 0.0 }, 998_332.0, 998_332.0),
        ("ramp", 64, |load, _| ((load - 0.5 * LIMIT) / LIMIT).clamp(0.0, 0.5) / 50.0, 497_602.0, 742_932.0),
        (
            "buffer",
            35,
            |load, time| ((load - LIMIT) * time - 100_000.0).max(0.0) / (load * time),
            1_098_017.0,
            1_098_017.0,
        ),
    ];
    for (name, library, device, ndr, pdr) in devices {
        let run = search(&both(), device);
        let found: Vec<f64> = run.found.iter().map(regular).collect();
        eprintln!("{name}: {} trials (library {library}), {} s, {found:?}", run.trials, run.seconds);
        assert!((found[0] / ndr - 1.0).abs() <= 0.006 && (found[1] / pdr - 1.0).abs() <= 0.0065, "{name}: {found:?}");
        assert!(run.trials * 4 <= library * 5, "{name}: {} trials, the library needs {library}", run.trials);
    }
    let short = search(&[Goal::rfc2544_short()], |load, _| hard(load));
    eprintln!("60 s: {} trials, {} s", short.trials, short.seconds);
    assert!(short.seconds <= 1.25 * 138.0 && (regular(&short.found[0]) / LIMIT - 1.0).abs() <= 0.006);
    // A buffer is not mistaken for a rate if trials are long.
    let buffer =
        search(&[Goal::rfc2544_short()], |load, time| ((load - LIMIT) * time - 100_000.0).max(0.0) / (load * time));
    eprintln!("60 s, buffer: {} trials, {} s", buffer.trials, buffer.seconds);
    assert!((regular(&buffer.found[0]) / LIMIT - 1.0).abs() <= 0.006);
    let strict = search(&[Goal::rfc2544()], |load, _| hard(load));
    eprintln!("strict: {} trials, {} s", strict.trials, strict.seconds);
    assert!(strict.trials <= 11 && (regular(&strict.found[0]) / LIMIT - 1.0).abs() <= 0.006);
}

#[test]
fn missing_bounds_are_reported() {
    let fine = search(&both(), |_, _| 0.0);
    assert!(fine.found.iter().all(|found| found.verdict == Verdict::NoUpper && found.lower == Some(LIMITS.greatest)));
    let broken = search(&both(), |_, _| 0.5);
    assert!(broken.found.iter().all(|found| found.verdict == Verdict::NoLower && found.upper == Some(LIMITS.least)));
    eprintln!("loses nothing: {} trials, half: {}", fine.trials, broken.trials);
    assert!(fine.trials <= 13 && broken.trials <= 60);
    let lossy = search(&both(), |load, _| hard(load).max(1e-5));
    assert_eq!(lossy.found[0].verdict, Verdict::NoLower);
    assert!((regular(&lossy.found[1]) / LIMIT - 1.0).abs() <= 0.006);
    eprintln!("10 ppm: {} trials", lossy.trials);
    assert!(lossy.trials <= 62, "the library needs 50");
}

/// One trial in five loses 2 % at random: results repeat.
#[test]
fn results_repeat_with_one_bad_trial_in_five() {
    for (chance, most) in [(0.05, 45.0), (0.2, 54.0)] {
        let mut trials = Vec::new();
        let mut near = 0;
        for seed in 0..100 {
            let mut dice = Dice(seed);
            let run = search(&both(), |load, _| hard(load).max(if dice.roll() < chance { 0.02 } else { 0.0 }));
            let ndr = regular(&run.found[0]);
            near += u32::from((ndr / LIMIT - 1.0).abs() <= 0.01);
            trials.push(run.trials);
        }
        trials.sort_unstable();
        eprintln!("one in {}: {} to {} trials, median {}", 1.0 / chance, trials[0], trials[99], trials[50]);
        assert!(near >= 95, "{near} of 100 are within 1 %");
        assert!(trials[50] as f64 <= most, "{trials:?}");
    }
}

/// Bad trials are tolerated by one goal, and proof for another.
#[test]
fn a_strict_goal_has_a_lower_result() {
    let noisy = |seed| {
        let mut dice = Dice(seed);
        search(&[Goal::rfc2544_short()], |load, _| hard(load).max(if dice.roll() < 0.2 { 0.02 } else { 0.0 }))
    };
    let least = (0..100).map(|seed| noisy(seed).found[0].lower.unwrap_or(0.0)).fold(f64::INFINITY, f64::min);
    assert!(least < 0.98 * LIMIT, "{least}");
}

#[test]
fn slow_tester_is_not_counted_as_device_loss() {
    let mut search = Search::new(LIMITS, &both()).unwrap();
    while let Some(ask) = search.next_trial() {
        let mut trial = Trial::new(ask, hard(ask.load));
        trial.is_limited = ask.load > LIMIT;
        search.add(trial);
    }
    assert_eq!(search.found()[0].verdict, Verdict::Tester);
}

#[test]
fn aborted_search_reports_its_bounds() {
    let mut search = Search::new(LIMITS, &both()).unwrap();
    for _ in 0..12 {
        let ask = search.next_trial().unwrap();
        search.add(Trial::new(ask, hard(ask.load)));
        assert_eq!(search.found()[0].verdict, Verdict::Unfinished);
    }
}

#[test]
fn search_duration_is_estimated_in_advance() {
    let guess = estimate(LIMITS, &both(), 0.5).unwrap();
    let run = search(&both(), |load, _| hard(load));
    let seconds = run.seconds + 0.5 * run.trials as f64;
    assert!(seconds <= guess.most_seconds && seconds >= guess.seconds / 2.0, "{seconds} of {guess:?}");
}

/// Result of a load: `noise` of the trials have a random loss, `lucky` of them none.
#[derive(Clone, Copy, Debug)]
struct Erratic {
    seed: u64,
    limit: f64,
    noise: f64,
    lucky: f64,
}

/// Runs a search for the goal with this index, and for another, to its end.
fn ends(device: Erratic, place: usize, limits: Limits) -> Result<(), TestCaseError> {
    let goals = [Goal::named(NAMES[place]).unwrap(), Goal { width: 0.03, ..Goal::pdr() }];
    let (mut search, mut dice) = (Search::new(limits, &goals).unwrap(), Dice(device.seed));
    let mut trials: Vec<Trial> = Vec::new();
    while let Some(ask) = search.next_trial() {
        prop_assert!(ask.load >= limits.least && ask.load <= limits.greatest);
        let loss = (1.0 - device.limit / ask.load).max(0.0);
        let loss = if dice.roll() < device.noise { 0.5 * dice.roll() } else { loss };
        let trial = Trial::new(ask, if dice.roll() < device.lucky { 0.0 } else { loss });
        search.add(trial);
        trials.push(trial);
        prop_assert!((trials.len() as u64) <= search.most_trials());
    }
    prop_assert!(search.is_done());
    for found in search.found() {
        prop_assert_ne!(found.verdict, Verdict::Unfinished);
        if let (Some(lower), Some(upper)) = (found.lower, found.upper) {
            prop_assert!(lower < upper);
        }
        let Some(lower) = found.lower else { continue };
        let of: Vec<&Trial> = trials.iter().filter(|trial| trial.load == lower).collect();
        let bad: f64 = of.iter().filter(|t| t.loss > found.goal.loss_ratio).map(|t| t.effective).sum();
        let all: f64 = of.iter().map(|trial| trial.effective).sum();
        // Good short trials excuse as many bad ones, and the share of bad ones is within the goal's ratio.
        prop_assert!(bad <= found.goal.exceed_ratio * all.max(found.goal.duration_sum) * (1.0 + 1e-6));
    }
    Ok(())
}

/// Short trials for the second goal contradict the first one's result for a load.
#[test]
fn trials_for_another_goal_can_reopen_a_search() {
    let device = Erratic {
        seed: 4_949_103_542_999_748_520,
        limit: 9_338_130.840081764,
        noise: 0.2611043379867975,
        lucky: 0.19276925142886892,
    };
    let least = 14487.04512391718;
    ends(device, 2, Limits { least, greatest: least * 5583.900855655323 }).unwrap();
}

proptest! {
    /// For any device, random or adversarial, the search terminates within limits, and its bounds match its trials.
    #[test]
    fn search_terminates_for_any_device(
        seed: u64, limit in 5e3f64..2e7, noise in 0.0f64..1.0, lucky in 0.0f64..1.0, place in 0usize..5,
        least in 1.0f64..1e5, factor in 1.01f64..1e4,
    ) {
        ends(Erratic { seed, limit, noise, lucky }, place, Limits { least, greatest: least * factor })?;
    }
}
