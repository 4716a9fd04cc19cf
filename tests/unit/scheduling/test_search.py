"""The search beside an enumeration of all executions, written separately and without a thought to speed."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlinf_cli.scheduling.costs import chunk_curve, devices_of_unit, memory_curve, stage_curve
from rlinf_cli.scheduling.plan import Prediction
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory, Problem, Spread, Stage
from rlinf_cli.scheduling.search import Search
from rlinf_cli.scheduling.search_arrivals import POINTS, arrivals
from rlinf_cli.scheduling.tree import width

INF = math.inf


def brute_force(problem):
    """The least seconds of an iteration over all trees, divisions of the devices and sizes of chunks; inf if there is none."""
    everything = frozenset(stage.name for stage in problem.stages)
    return min((cost["around"] for cost in Execution(problem).all(everything, problem.devices, 0.0)), default=INF)


def least(problem, names):
    stages = [problem.stage(name) for name in names]
    return max(min(devices_of_unit(one) for one in stage.choices) for stage in stages)


def merges(problem, names):
    stages = [problem.stage(name) for name in names]
    return (problem.interleaves and stages[0].weights and len({stage.weights for stage in stages}) == 1
            and all(stage.streams and stage.needs_device and isinstance(stage.cost, Batch) for stage in stages))


def initial(problem, names):
    """Subsets on which nothing outside of them flows back."""
    for size in range(1, len(names)):
        for chosen in combinations(sorted(names), size):
            if all(name in chosen or name not in names for one in chosen for name in problem.stage(one).after):
                yield frozenset(chosen)


class Execution:
    """Of everything that there is of some stages on n devices, where others leave `reserved` bytes: {"whole": s, "around": s,
    "exposed": bytes, "pipes": [(size, streams on, sum, pace, arrivals or None)]}"""

    def __init__(self, problem):
        self.problem, self.known = problem, {}

    def all(self, names, n, reserved):
        key = names, n, reserved
        if key not in self.known:
            self.known[key] = [self.with_whole(cost) for cost in self.trees(names, n, reserved) if cost["whole"] < INF]
        return self.known[key]

    def with_whole(self, cost):
        """Any can wait for its whole batch."""
        pipes = [pipe for pipe in cost["pipes"] if pipe[2] < INF]
        return {**cost, "pipes": pipes + [(size, False, cost["whole"], 0.0, None) for size in self.sizes()]}

    def trees(self, names, n, reserved):
        if len(names) == 1:
            yield self.leaf(self.problem.stage(*names), n, reserved)
            return
        if merges(self.problem, names):
            yield self.merged(names, n, reserved)
        for first in initial(self.problem, names):
            second = names - first
            if all(any(self.problem.stage(name).needs_device for name in side) for side in (first, second)):
                for left, other in product(self.exposures(first), self.exposures(second)):
                    for a, b in product(self.all(first, n, reserved + other), self.all(second, n, reserved + left)):
                        if a["exposed"] == left and b["exposed"] == other:
                            yield {**self.turn(a, b, first, second), "exposed": left + other}
            for mine in range(least(self.problem, first), n - least(self.problem, second) + 1):
                for a, b in product(self.all(first, mine, reserved), self.all(second, n - mine, reserved)):
                    yield {**self.beside(a, b, first, second), "exposed": max(a["exposed"], b["exposed"])}

    def exposures(self, names):
        """What some stages can leave on a device: sums over any of them."""
        return {sum(self.left(name) for name in chosen) for size in range(len(names) + 1)
                for chosen in combinations(sorted(names), size)}

    def sizes(self):
        sizes = set()
        for stage in self.problem.stages:
            size = math.lcm(self.problem.group, stage.least_chunk)
            while stage.streams and size < self.problem.samples:
                sizes.add(size)
                size *= 2
        return sorted(sizes)

    def leaf(self, stage, n, reserved):
        usable, whole, came, chosen = self.usable(stage, reserved)
        usable, pipes = [count for count in usable if count <= n], []
        for size in self.sizes() if usable else []:
            if isinstance(stage.cost, Decoding):
                if not stage.after:
                    pipes.append((size, True, 0.0, 0.0, [min(came[count][part] for count in usable) for part in range(POINTS)]))
            elif stage.streams and size % stage.least_chunk == 0:
                seconds = min(chunk_curve(self.problem, chosen[count], count, size)[count] for count in usable)
                pipes.append((size, True, seconds, seconds, None))
        least = min((whole[count] for count in usable), default=INF)
        return {"whole": least, "around": least, "pipes": pipes, "exposed": self.left(stage.name)}

    def usable(self, stage, reserved):
        """Numbers of devices; seconds with each of them; when the parts come that it generates, if more devices than serve it are
        left alone; and its best choice of devices a rank."""
        most = self.problem.devices
        alone, chosen = np.full(most + 1, INF), {}
        for one in stage.choices:
            loaded, seconds = memory_curve(one, most)[0], stage_curve(self.problem, one, most)
            for n in range(most + 1):
                if loaded[n] + reserved <= self.problem.device_memory and seconds[n] < alone[n]:
                    alone[n], chosen[n] = seconds[n], one
        usable = sorted(chosen)
        if not isinstance(stage.cost, Decoding) or not usable:
            return usable, alone, {}, chosen
        used = {n: min((m for m in usable if m <= n), key=lambda m: alone[m]) for n in range(usable[0], most + 1)}
        came = {}
        for one in stage.choices:  # numbers of replicas of the same kind together
            counts = {n: m for n, m in used.items() if chosen[m] == one}
            if counts:
                mine = np.array(list(counts.values()))
                came |= zip(counts, arrivals(self.problem, one.cost, mine // one.unit, alone[mine]).T)
        return usable, alone, came, chosen

    def merged(self, names, n, reserved):
        sum_s, left = dict.fromkeys(self.sizes(), 0.0), sum(map(self.left, names))
        for name in names:
            alone = self.leaf(self.problem.stage(name), n, reserved + left - self.left(name))
            streams = {pipe[0]: pipe[2] for pipe in alone["pipes"]}
            for size in sum_s:
                sum_s[size] += streams.get(size, INF)
        pipes = [(size, True, seconds, seconds, None) for size, seconds in sum_s.items()]
        whole = min((self.seconds(pipe) for pipe in pipes if pipe[2] < INF), default=INF)
        return {"whole": whole, "around": whole, "pipes": pipes, "exposed": left}

    def turn(self, first, second, one, other):
        there, back = self.switch(one, other), self.switch(other, one)
        pipes = [(size, False, seconds + there + second["whole"], pace, came) for size, _, seconds, pace, came in first["pipes"]]
        whole = first["whole"] + there + second["whole"]
        return {"whole": whole, "around": whole + back, "pipes": pipes}

    def beside(self, first, second, one, other):
        edges = [(a, b) for a in one for b in other if a in self.problem.stage(b).after]
        if not edges:
            return self.apart(first, second, self.generates(one) or self.generates(other))
        latency = max(self.problem.transfer_s.get(edge, 0.0) for edge in edges)
        pipes = [(a[0], b[1], a[2] + b[2] + latency * a[0], max(a[3], b[3]), a[4] or b[4]) for a in first["pipes"] if a[1]
                 for b in second["pipes"] if b[0] == a[0] and not (self.generates(one) and self.generates(other))]
        piped = min(map(self.seconds, pipes), default=INF)
        return {"whole": min(first["whole"] + second["whole"], piped), "around": min(first["around"] + second["whole"], piped),
                "pipes": pipes}

    def generates(self, names):
        """Generation sets the pace of only one strand of a pipeline."""
        return any(isinstance(self.problem.stage(name).cost, Decoding) and not self.problem.stage(name).after for name in names)

    def apart(self, first, second, generates):
        pipes = []
        for a in [] if generates else first["pipes"]:
            for b in second["pipes"]:
                pipes += [(a[0], a[1] and b[1], max(a[2], b[2]), max(a[3], b[3]), None)] * (a[0] == b[0])
        return {"whole": max(first["whole"], second["whole"]), "around": max(first["around"], second["around"]), "pipes": pipes}

    def seconds(self, pipe):
        """Of a pipeline: what comes last, and what is behind it."""
        size, _, total, pace, came = pipe
        chunks = math.ceil(self.problem.samples / size)
        if came is None:
            return total + (chunks - 1) * pace
        found = []
        for part in range(1, len(came) + 1):
            chunk = math.ceil(chunks * part / len(came))
            last = min(math.ceil(chunk / chunks * len(came)), len(came))
            found.append(came[last - 1] + (chunks - chunk) * pace)
        return total + max(found)

    def switch(self, one, other):
        sinks = [a for a in one if not any(a in self.problem.stage(b).after for b in one)]
        sources = [b for b in other if not any(a in self.problem.stage(b).after for a in other)]
        return max(self.problem.switch(self.problem.stage(a), self.problem.stage(b)) for a in sinks for b in sources)

    def left(self, name):
        stage = self.problem.stage(name)
        return stage.memory.left if stage.needs_device and not stage.memory.host else 0.0


@st.composite
def problems(draw, sizes=((1, 8), (2, 8), (3, 5), (4, 2), (4, 3)), units=(1, 2), is_chain=False):
    """`sizes`: (stages, devices) · `is_chain`: each takes the items of the one before it, or of that one's producer."""
    count, devices = draw(st.sampled_from(sizes))
    names = "abcdef"[:count]
    built = []
    for place, name in enumerate(names):
        after = tuple(other for other in names[:place] if draw(st.booleans()))
        if is_chain and place:
            after = tuple({names[place - 1] if place < 2 or draw(st.booleans()) else built[-1].after[0]})
        built.append(draw(stage_of(name, after, units)))
    pairs = [(a, b) for a in names for b in names if a != b]
    lengths = [*draw(st.lists(st.integers(1, 40), min_size=5, max_size=5)), 60]
    return Problem(
        tuple(built), devices, np.array(lengths), group=draw(st.sampled_from([1, 2])),
        device_memory=draw(st.sampled_from([INF, 12.0, 8.0])),
        switch_s={pair: draw(st.sampled_from([0.0, 0.5, 2.0])) for pair in pairs},
        transfer_s={pair: draw(st.sampled_from([0.0, 0.02])) for pair in pairs},
        dealing=draw(st.sampled_from(["as_taken", "round_robin"])), interleaves=draw(st.booleans()))


@st.composite
def stage_of(draw, name, after, units):
    memory = Memory(draw(st.sampled_from([1.0, 4.0])), draw(st.sampled_from([0.0, 8.0])), draw(st.sampled_from([0.0, 1.0, 3.0])),
                    draw(st.booleans()))
    if not after and draw(st.booleans()):
        cost = Decoding(Curve((1.0, 4.0), (0.1, draw(st.sampled_from([0.1, 0.16])))), draw(st.sampled_from([2, 4])),
                        draw(st.sampled_from(units)), call_s=0.1)
        other = replace(cost, step_s=Curve((1.0, 4.0), (0.06, 0.13)), devices_per_replica=max(units) + 1)
        weights = draw(st.sampled_from(["", "w"]))
        return Stage(name, cost, after, memory=memory, weights=weights, spreads=draw(choice_of(other, memory, weights)))
    laws = tuple((ranks, Law(draw(st.sampled_from([0.0, 0.05])), draw(st.sampled_from([0.1, 0.5])), 0.01)) for ranks in (1, 4))
    cost = Batch(laws, draw(st.sampled_from(units)), draw(st.sampled_from([0.0, 0.3])), draw(st.sampled_from([0, 0, 2])))
    other = replace(cost, laws=((1, Law(0.02, 0.08, 0.01)),), devices_per_rank=max(units) + 1)
    weights = draw(st.sampled_from(["", "w"]))
    return Stage(name, cost, after, memory=memory, needs_device=draw(st.sampled_from([True, True, True, False])),
                 streams=draw(st.sampled_from([True, True, False])), weights=weights,
                 least_chunk=draw(st.sampled_from([1, 2])), spreads=draw(choice_of(other, memory, weights)))


def choice_of(cost, memory, weights):
    """Perhaps another number of devices a rank, with which less memory is needed."""
    other = Spread(cost, Memory(memory.fixed / 2, memory.shared, memory.left, memory.host))
    return st.sampled_from([(), (), (other,)] if not weights else [()])


def instantly(problem, plan):
    """A simulation that nobody waits for."""
    return Prediction(1.0 * width(plan.tree))


def found_by_search(problem):
    candidates = Search(problem, 8, instantly).candidates()
    return candidates[0].seconds if candidates else INF


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems())
def test_the_search_finds_what_an_enumeration_of_everything_finds(problem):
    assert found_by_search(problem) == pytest.approx(brute_force(problem), rel=1e-9)


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems(sizes=((5, 8), (6, 8)), units=(4,), is_chain=True))
def test_it_does_so_for_six_stages_on_eight_devices(problem):
    assert found_by_search(problem) == pytest.approx(brute_force(problem), rel=1e-9)
