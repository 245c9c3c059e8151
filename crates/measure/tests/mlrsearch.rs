//! The search compared with the library `MLRsearch` 1.2.1 of FD.io CSIT, trial by trial, on simulated devices.

use linerate_measure::grid::Grid;
use linerate_measure::{Class, Goal, Limits, Rule, Search, Trial, Verdict, conditional_throughput};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "MLRsearch==1.2.1";
const LIMITS: Limits = Limits { least: 10_000.0, greatest: 10_000_000.0 };
const LIMIT: f64 = 1e6;

/// Run of the library on a device.
#[derive(Debug, Default)]
struct Run {
    device: String,
    goals: Vec<Goal>,
    /// Index of the greatest load on its grid.
    top: Option<usize>,
    trials: Vec<(f64, f64, f64)>,
    /// Lower and upper bound, conditional throughput.
    found: Vec<[Option<f64>; 3]>,
}

/// A Python with the library: the existing one, or a new one. `None` if it cannot be installed.
fn python() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mlrsearch");
    let python = target.join("bin/python");
    let does = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let is_there = || does(Command::new(&python).args(["-c", "import MLRsearch"]));
    if !is_there() {
        let _ = std::fs::remove_dir_all(&target);
        let _ = does(Command::new("python3").args(["-m", "venv"]).arg(&target))
            && does(
                Command::new(&python)
                    .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--quiet", PACKAGE])
                    .args(["--timeout", "5", "--retries", "1"]),
            );
    }
    is_there().then_some(python)
}

/// Runs the library on every device.
fn runs(python: &Path) -> Vec<Run> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlrsearch/searches.py");
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut runs: Vec<Run> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse::<f64>().ok();
        match words[0] {
            "device" => {
                let goals = words[2].split(',').map(goal).collect();
                runs.push(Run { device: words[1].to_owned(), goals, ..Run::default() });
            }
            "grid" => runs.last_mut().unwrap().top = words[1].parse().ok(),
            "trial" => {
                runs.last_mut().unwrap().trials.push((number(1).unwrap(), number(2).unwrap(), number(3).unwrap()));
            }
            _ => runs.last_mut().unwrap().found.push([number(1), number(2), number(3)]),
        }
    }
    runs
}

/// A goal of the script.
fn goal(name: &str) -> Goal {
    match name {
        "pdr-wide" => Goal { width: 0.0123, ..Goal::pdr() },
        name => Goal::named(name).unwrap(),
    }
}

/// The same devices as in the script: loss ratio for a load and a duration, in the n-th trial.
fn loss(device: &str, load: f64, time: f64, trial: u64) -> f64 {
    let hard = (1.0 - LIMIT / load).max(0.0);
    let bad = |chance: f64| if draw(trial) < chance { 0.02 } else { 0.0 };
    let part = match device {
        "hard" => hard,
        "step" => f64::from(u8::from(load > LIMIT)) * 0.1,
        "ramp" => ((load - 0.5 * LIMIT) / LIMIT).clamp(0.0, 0.5) / 50.0,
        "10ppm" => hard.max(1e-5),
        "rare" => hard.max(bad(0.05)),
        "noisy" => hard.max(bad(0.2)),
        "edge" => bad(1.0 / (1.0 + (-(load / LIMIT - 1.0) * 200.0).exp())),
        "scatter" => hard.max(0.001 + 0.005 * draw(trial)),
        "buffer" => ((load - LIMIT) * time - 100_000.0).max(0.0) / (load * time),
        "inversion" => hard.max(if load > 3e5 && load < 4e5 { 0.03 } else { 0.0 }),
        "fine" => 0.0,
        "half" => 0.5,
        other => panic!("no device {other}"),
    };
    let count = (load * time).round_ties_even();
    (part * count).round_ties_even() / count
}

/// SplitMix64, as in the script.
fn draw(n: u64) -> f64 {
    let mut word = 7u64.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((word ^ word >> 31) >> 11) as f64 / (1u64 << 53) as f64
}

/// Our classification of the library's trials.
fn judged(run: &Run, goal: &Goal) -> [Option<f64>; 3] {
    let mut loads: BTreeMap<u64, Vec<Trial>> = BTreeMap::new();
    for (load, duration, loss) in &run.trials {
        let ask = linerate_measure::TrialRequest { load: *load, duration: *duration };
        loads.entry(load.to_bits()).or_default().push(Trial::new(ask, *loss));
    }
    let rule = Rule::from(goal);
    let (mut lower, mut upper) = (None, None);
    // The bits of loads above 0 compare like the loads.
    for (load, trials) in &loads {
        match rule.class(trials) {
            Class::Lower => lower = Some(*load),
            Class::Upper => {
                upper = Some(*load);
                break;
            }
            Class::Undecided => {}
        }
    }
    let throughput = lower.map(|load| conditional_throughput(&rule, f64::from_bits(load), &loads[&load]));
    [lower.map(f64::from_bits), upper.map(f64::from_bits), throughput]
}

fn is_near(one: Option<f64>, other: Option<f64>, part: f64) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one / other - 1.0).abs() <= part,
        (one, other) => one.is_none() == other.is_none(),
    }
}

/// Compares the results for a device, and returns the numbers of trials, ours and the library's.
fn compare(run: &Run) -> (usize, usize) {
    let name = format!("{} {}", run.device, run.goals.iter().map(|goal| goal.name).collect::<Vec<_>>().join(","));
    // The normative part: the library's own trials give the library's own bounds and throughputs.
    for (goal, found) in run.goals.iter().zip(&run.found) {
        for (ours, library) in judged(run, goal).into_iter().zip(found) {
            assert!(is_near(ours, *library, 1e-6), "{name} {}: {ours:?} of {library:?}", goal.name);
        }
    }
    let grid = Grid::new(LIMITS, &run.goals).unwrap();
    assert_eq!(Some(grid.top()), run.top, "{name}: loads are on the same grid");
    let mut search = Search::new(LIMITS, &run.goals).unwrap();
    let (mut trials, mut seconds) = (Vec::new(), 0.0);
    while let Some(ask) = search.next_trial() {
        search.add(Trial::new(ask, loss(&run.device, ask.load, ask.duration, trials.len() as u64)));
        trials.push(ask.load);
        seconds += ask.duration;
    }
    let is_same = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
    let same = trials.iter().zip(&run.trials).take_while(|(ours, other)| is_same(**ours, other.0)).count();
    assert!(same >= 1, "{name}: both start with the maximum load");
    let shared = trials.iter().filter(|load| run.trials.iter().any(|(other, ..)| is_same(**load, *other))).count();
    let theirs: f64 = run.trials.iter().map(|trial| trial.1).sum();
    println!(
        "{name}: {} trials, {seconds:.0} s; the library {}, {theirs:.0} s; the first {same} are the same, {shared} at its loads",
        trials.len(),
        run.trials.len()
    );
    // With noise the order of trials decides which of them are bad; and of two widths the finer one is reached from
    // other loads: a width apart then.
    let has_chance = ["rare", "noisy", "edge", "scatter"].contains(&run.device.as_str());
    let has_widths = run.goals.iter().any(|goal| goal.width != run.goals[0].width);
    for (found, library) in search.found().iter().zip(&run.found) {
        assert_ne!(found.verdict, Verdict::Unfinished, "{name}");
        let apart = if has_chance || has_widths { 1.02 * found.goal.width } else { 1e-9 };
        for (ours, library) in [(found.lower, library[0]), (found.upper, library[1])] {
            assert!(is_near(ours, library, apart), "{name}: {ours:?} of {library:?}");
        }
    }
    (trials.len(), run.trials.len())
}

/// The same bounds as the library's on every device, on the same grid of loads, in about as many trials. The loads
/// differ once goals search outwards: the library has one width for all goals, doubled by the goal that did so last,
/// and requests no lower load than that; here each goal has its own, so a device that loses half of everything takes
/// six trials more.
#[test]
fn results_equal_those_of_the_library() {
    if std::env::var_os("LINERATE_PEERS").is_none() {
        return eprintln!("SKIPPED: make test-peers compares with {PACKAGE}");
    }
    let python = python().expect("a network, and python3 with venv, to install it from PyPI");
    let runs = runs(&python);
    assert_eq!(runs.len(), 48);
    let counts: Vec<(usize, usize)> = runs.iter().map(compare).collect();
    let (ours, library) = counts.iter().fold((0, 0), |sum, (ours, library)| (sum.0 + ours, sum.1 + library));
    println!("all: {ours} trials, the library {library}");
    assert!(ours * 4 <= library * 5, "{ours} trials, the library {library}");
    for (run, (ours, library)) in runs.iter().zip(counts) {
        assert!(ours * 2 <= library * 4, "{} {:?}: {ours} trials, the library {library}", run.device, run.goals);
    }
}
