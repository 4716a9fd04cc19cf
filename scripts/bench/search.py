"""How long the search for a placement takes, on one core, from 8 to 4096 devices.

    python scripts/bench/search.py

The problem is the paper's chain of three stages, rollout, inference, training, with 512 responses of up to 28672 tokens; at 1024
devices also with more of them, up to 65536 (`raw.by_samples`), and a graph of PPO with six stages. A search is all of `search()`:
cost curves, the dynamic programme, sizes of chunks, simulation of the best few. Beside it: the paper's figures for its own
implementation, on its own machine, and a literal transcription of the published recursion (memoised, scalar, cuts that are
prefixes of one order, every split of the devices, the same sizes of chunks), run here up to the number of devices at which the
next would take more than 20 s.

Seconds are those of the processor, the least of several runs: the machine may be shared. Ratios: `recursion_1024` the
transcription's time at 1024 devices divided by ours (at the largest number that it was run for, if that is smaller) ·
`paper_1024` the paper's figure divided by our time · `growth` our time at 4096 devices divided by that at 8 · `growth_samples`
our time at 1024 devices with 16384 responses divided by that with 512.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from itertools import permutations

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core, also where NumPy would use more

import numpy as np

from rlinf_cli.scheduling.costs import stage_curve
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.search import search
from rlinf_cli.scheduling.search_costs import chunk_sizes
from rlinf_cli.scheduling.tree import text

DEVICES = [2**power for power in range(3, 13)]
PAPER = {8: 7e-4, 1024: 5.98}
"""Seconds that the paper gives for three stages; for 4096 devices it says: less than a minute."""
LONGEST = 20.0
SAMPLES = (512, 1536, 2048, 4096, 8192, 16384, 65536)
"""Those that take longest for their size are the largest batch that is followed in full (1536), and the largest."""

DECODING = Decoding(Curve((1.0, 256.0), (0.008, 0.02)), slots=256)


def trained(name, after, token_s, **other):
    return Stage(name, Batch(((1, Law(chunk_s=0.02, token_s=token_s)),)), after, **other)


def chain(devices, samples=512):
    return problem(devices, 28672, (
        Stage("rollout", DECODING),
        trained("inference", ("rollout",), 2e-5),
        trained("training", ("inference",), 8e-5, trains=True)), samples)


def ppo(devices):
    return problem(devices, 12288, (
        Stage("rollout", DECODING),
        trained("reward_model", ("rollout",), 1e-5),
        trained("reference", ("rollout",), 2e-5),
        trained("critic_inference", ("rollout",), 2.1e-5),
        trained("actor_training", ("reward_model", "reference", "critic_inference"), 8e-5, trains=True),
        trained("critic_training", ("reward_model", "critic_inference"), 8.2e-5)))


def problem(devices, longest, stages, samples=512):
    lengths = np.random.default_rng(0).lognormal(np.log(longest / 5), 0.8, samples)
    pairs = permutations([stage.name for stage in stages], 2)
    return Problem(stages, devices, np.minimum(lengths, longest).astype(np.int64), switch_s=dict.fromkeys(pairs, 4.0), sync_s=2.0)


def published(given):
    """Seconds of an iteration as the published recursion has them; of a pipeline it keeps one number."""
    curves = [stage_curve(given, stage, given.devices).tolist() for stage in given.stages]
    shares = [size / given.samples for size in chunk_sizes(given)]
    switch_s = max(given.switch_s.values())

    @functools.cache
    def find(first, last, devices):
        if last - first == 1:
            return curves[first][devices]
        best = float("inf")
        for cut in range(first + 1, last):
            best = min(best, find(first, cut, devices) + find(cut, last, devices) + switch_s)
            for mine in range(1, devices):
                one, other = find(first, cut, mine), find(cut, last, devices - mine)
                for share in shares:
                    best = min(best, share * (one + other) + (1 / share - 1) * share * max(one, other))
        return best

    return find(0, len(curves), given.devices)


def seconds(call, repeats):
    """The least of so many runs, and what the last one found."""
    found, times = None, []
    for _ in range(repeats):
        began = time.process_time()
        found = call()
        times.append(time.process_time() - began)
    return min(times), found


def published_curve():
    times = {}
    for devices in DEVICES:
        given = chain(devices)
        times[devices], _ = seconds(lambda given=given: published(given), 1)
        if 4.5 * times[devices] > LONGEST:
            break
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    ours, plans = {}, {}
    for devices in DEVICES:
        ours[devices], found = seconds(lambda devices=devices: search(chain(devices)), repeats)
        plans[devices] = text(found.best.tree)
    by_samples = {samples: seconds(lambda samples=samples: search(chain(1024, samples)), repeats)[0] for samples in SAMPLES}
    ppo_s, found = seconds(lambda: search(ppo(1024)), repeats)
    theirs = published_curve()
    largest = max(set(theirs) & {devices for devices in DEVICES if devices <= 1024})
    print(json.dumps({
        "bench": "search",
        "ratios": {"recursion_1024": theirs[largest] / ours[largest], "paper_1024": PAPER[1024] / ours[1024],
                   "growth": ours[4096] / ours[8], "growth_samples": by_samples[16384] / by_samples[512]},
        "raw": {"seconds": ours, "paper": PAPER, "published_recursion": theirs, "by_samples": by_samples, "ppo6_1024": ppo_s,
                "plans": plans, "ppo6_plan": text(found.best.tree), "considered_ppo6": found.considered,
                "simulated_ppo6": found.simulated}}))


if __name__ == "__main__":
    main()
