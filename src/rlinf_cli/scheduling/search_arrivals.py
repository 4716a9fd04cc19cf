"""When generated responses come, for all numbers of replicas at once: few of them early, and some late. What follows generation
in a pipeline is done when it has caught up with all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlinf_cli.scheduling.generation import Floats, Ints, finish_times
from rlinf_cli.scheduling.problem import Curve, Decoding, Problem

POINTS = 64
"""Parts of a batch whose arrival is told."""
SAMPLES = 128
"""Of a replica that stands for all."""


def arrivals(problem: Problem, decoding: Decoding, replicas: Ints, whole: Floats) -> Floats:
    """Seconds from the begin of a batch until 1/64, 2/64, ... of its groups are done, [64, as `replicas`]; all of them after
    `whole` [as `replicas`]. Computed where the numbers of replicas double, and straight in their logarithm between."""
    rungs = np.unique(np.minimum(2 ** np.arange(int(replicas.max(initial=1)).bit_length() + 1), replicas.max(initial=1)))
    widest = np.maximum.reduceat(problem.lengths, np.arange(0, problem.samples, problem.group))
    ordered = np.sort(widest)
    known = np.array([_shares(decoding, widest, ordered, -(-problem.samples // int(rung))) for rung in rungs])
    found: Floats = whole * np.array([np.interp(np.log(replicas), np.log(rungs), row) for row in known.T])
    return found


def _shares(decoding: Decoding, lengths: Ints, ordered: Ints, mine: int) -> Floats:
    """Of the time in which a replica deals with `mine` responses of such lengths, as they come and from short to long, [64]: by
    a smaller one of as many waves."""
    count = min(SAMPLES, mine, len(lengths))
    scale = mine / count
    curve = Curve(tuple(x / scale for x in decoding.step_s.xs), decoding.step_s.ys)
    small = replace(decoding, step_s=curve, slots=max(1, round(decoding.slots / scale)), prefill_s=0.0, call_s=0.0)
    sample = lengths[np.linspace(0, len(lengths) - 1, count).astype(np.int64)]
    if mine <= decoding.slots:  # all at once, so that their order is of no account
        small = replace(small, slots=max(small.slots, POINTS))
        places = np.linspace(0, len(ordered) - 1, max(count, POINTS))
        sample = np.interp(places, np.arange(len(ordered)), ordered).astype(np.int64)
    ends = np.sort(finish_times(small, sample, 1))
    parts: Floats = ends[np.ceil(np.arange(1, POINTS + 1) / POINTS * len(ends)).astype(np.int64) - 1]
    last = float(ends[-1])
    return parts / last
