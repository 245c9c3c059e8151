"""Runs the library MLRsearch (PyPI, FD.io CSIT) on simulated devices, and prints each trial and result.

One line each: `device NAME GOALS`, `grid POINTS`, `trial LOAD DURATION LOSS`, `goal LOWER UPPER THROUGHPUT` ("-" for none).
"""

import math

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

LIMIT = 1e6


def hard(load):
    return max(0.0, 1 - LIMIT / load)


def draw(n):
    """SplitMix64 from the seed 7."""
    mask = (1 << 64) - 1
    word = (7 + (n + 1) * 0x9E3779B97F4A7C15) & mask
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & mask
    return ((word ^ word >> 31) >> 11) / (1 << 53)


def bad(chance, trial):
    return 0.02 if draw(trial) < chance else 0.0


DEVICES = {
    "hard": lambda load, _, __: hard(load),
    "step": lambda load, _, __: 0.1 if load > LIMIT else 0.0,
    "ramp": lambda load, _, __: min(max((load - 0.5 * LIMIT) / LIMIT, 0.0), 0.5) / 50,
    "10ppm": lambda load, _, __: max(hard(load), 1e-5),
    "rare": lambda load, _, trial: max(hard(load), bad(0.05, trial)),
    "noisy": lambda load, _, trial: max(hard(load), bad(0.2, trial)),
    "edge": lambda load, _, trial: bad(1 / (1 + math.exp(-(load / LIMIT - 1) * 200)), trial),
    "scatter": lambda load, _, trial: max(hard(load), 0.001 + 0.005 * draw(trial)),
    "buffer": lambda load, time, _: max(0.0, (load - LIMIT) * time - 100_000) / (load * time),
    "inversion": lambda load, _, __: max(hard(load), 0.03 if 3e5 < load < 4e5 else 0.0),
    "fine": lambda load, _, __: 0.0,
    "half": lambda load, _, __: 0.5,
}
SHORT = {"initial_trial_duration": 1.0, "final_trial_duration": 60.0, "fail_fast": False}
GOALS = {
    "ndr,pdr": (SearchGoal(fail_fast=False), SearchGoal(loss_ratio=0.005, fail_fast=False)),
    "ndr,pdr-wide": (SearchGoal(fail_fast=False), SearchGoal(loss_ratio=0.005, relative_width=0.0123, fail_fast=False)),
    "rfc2544-short": (SearchGoal(exceed_ratio=0.0, duration_sum=60.0, **SHORT),),
    "tst009": (SearchGoal(exceed_ratio=0.5, duration_sum=120.0, **SHORT),),
}


class Measurer(AbstractMeasurer):
    def __init__(self, device):
        self.device = device
        self.trials = 0

    def measure(self, intended_duration, intended_load):
        count = round(intended_load * intended_duration)
        lost = round(self.device(intended_load, intended_duration, self.trials) * count)
        self.trials += 1
        result = MeasurementResult(
            intended_duration=intended_duration, intended_load=intended_load, offered_count=count, loss_count=lost
        )
        print("trial", repr(float(intended_load)), repr(float(intended_duration)), repr(result.loss_ratio))
        return result


def number(value):
    return "-" if value is None else repr(float(value))


for name, device in DEVICES.items():
    for named, goals in GOALS.items():
        config = Config()
        config.goals = goals
        config.min_load, config.max_load = 1e4, 1e7
        config.warmup_duration = None
        print("device", name, named)
        search = MultipleLossRatioSearch(config=config)
        found = search.search(measurer=Measurer(device))
        print("grid", search.rounding.max_int_load)
        for goal in goals:
            result = found[goal]
            print(
                "goal",
                number(result.relevant_lower_bound),
                number(result.relevant_upper_bound),
                number(result.conditional_throughput),
            )
