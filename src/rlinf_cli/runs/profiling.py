"""What `rlinf profile` does: run real steps of the workflow, on one device, two, four, ... and with small and large batches, and
keep what they took. The roles take turns, so that each is measured alone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.stream import PromptStream, StreamItem
from rlinf_cli.errors import RlinfError, UsageError, did_you_mean
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.placement import Placement
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.runs.files import logs_of
from rlinf_cli.runs.flow import Interlude, RunFlow, prompt_of
from rlinf_cli.runs.launch import terminate_as_interrupt
from rlinf_cli.runs.placing import place
from rlinf_cli.runs.preflight import Prepared, admit, prepare
from rlinf_cli.runs.profiling_steps import Observed
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.roles import Roles
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.graph import Graph
from rlinf_cli.scheduling.profile import Profile
from rlinf_cli.workers.generation import doubling

BUDGET_S = 60.0
"""Seconds of measuring, by default; processes are started and ended besides."""
DECODING = 0.25
"""Share of the budget for decode steps by themselves."""
REPEAT = 3
"""Steps of each batch size on each number of devices."""
PATIENCE_S = 20.0
"""How long what is interrupted may take to end its calls."""
_SAMPLES = 64


@dataclass(frozen=True)
class Wanted:
    """What is to be measured. `batches`: prompts in a step, or environments; none: a quarter of `rollout.prompts`, or of
    `env.count`, half and all of them."""

    batches: Sequence[int] = ()
    repeat: int = REPEAT
    budget_s: float = BUDGET_S
    roles: Sequence[str] = ()
    """None: all."""


@dataclass(frozen=True)
class Profiled:
    """What came of it."""

    profile: Profile
    graph: Graph
    differences: Sequence[str] = ()
    """Where items flowed otherwise than ports declare."""
    seconds: float = 0.0

    def document(self, path: Path | None) -> dict[str, Any]:
        """Everything, as JSON has it. `path`: where the profile was written."""
        graph = self.graph
        return {"path": None if path is None else str(path), "seconds": round(self.seconds, 3),
                "graph": {"nodes": {node.name: list(graph.after(node)) for node in graph.nodes},
                          "edges": [list(edge) for edge in graph.edges],
                          "publications": [list(edge) for edge in graph.publications]},
                "differences": list(self.differences), "profile": profile_file.document(self.profile)}


@dataclass(frozen=True)
class Session:
    """A measurement that may start."""

    prepared: Prepared
    wanted: Wanted
    batches: Sequence[int]


def open_profile(config: RunConfig, wanted: Wanted, plugins: Plugins) -> Session:
    """Check everything. Raises RlinfError at the first thing that is wrong."""
    whole = config.env.count if config.env.name else config.rollout.prompts
    batches = sorted(set(wanted.batches)) or sorted({max(1, whole // 4), max(1, whole // 2), whole})
    prepared = prepare(_as_measured(config, batches[-1]), plugins)
    for role in wanted.roles:
        if role not in prepared.roles:
            raise UsageError(f"--roles: the workflow has no role '{role}'{did_you_mean(role, prepared.roles)}; it has "
                             f"{', '.join(prepared.roles)}")
    return Session(replace(prepared, placement=None), wanted, batches)


def _as_measured(config: RunConfig, prompts: int) -> RunConfig:
    """Synchronous steps on shared devices, in processes of their own, and nothing else."""
    return replace(
        config, placement="temporal", rollout=replace(config.rollout, prompts=prompts, staleness=0),
        cluster=replace(config.cluster, fused=False), eval=replace(config.eval, every=0),
        log=replace(config.log, loggers=[], samples=_SAMPLES), checkpoint=replace(config.checkpoint, every=0, best=""))


def measure(session: Session, plugins: Plugins, progress: Progress) -> Profiled:
    """Launch, run, measure. Raises RlinfError, and KeyboardInterrupt on Ctrl-C or SIGTERM; nothing is left behind then."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminate_as_interrupt())
        logs = stack.enter_context(logs_of("profile"))
        prepared = admit(session.prepared, plugins, lambda text: progress.message("data", text))
        progress.phase("starting Ray")
        cluster_config = prepared.config.cluster
        cluster = stack.enter_context(Cluster.start(
            cluster_config.devices, cluster_config.address, logs, cluster_config.start_timeout_s, cluster_config.call_timeout_s,
            stall_timeout=cluster_config.stall_timeout_s, restarts=0))
        measuring = _Measuring(replace(session, prepared=prepared), cluster, progress)
        measuring.run()
        return measuring.result(time.monotonic() - began)


class Batches(PromptStream):
    """Of the stream's prompts: batch `number` has `sizes[number]` of them."""

    def __init__(self, stream: PromptStream, sizes: Sequence[int], config: RunConfig) -> None:
        super().__init__(stream.sources, max(sizes), config.seed, config.data.shuffle)
        self._sizes = sizes

    def batch(self, number: int) -> list[StreamItem]:
        return super().batch(number)[: self._sizes[number]]


@dataclass
class _Measuring:
    """`session`: with the prompts that are not too long."""

    session: Session
    cluster: Cluster
    progress: Progress
    observed: Observed = field(init=False)

    def __post_init__(self) -> None:
        prepared = self.session.prepared
        self.observed = Observed(prepared.config, list(prepared.roles.values()))

    def run(self) -> None:
        """One number of devices after the other; each has its part of the time that is left."""
        numbers, session = doubling(len(self.cluster.devices)), self.session
        acts = bool(session.prepared.config.env.name)
        # environments stay as many as they were launched with
        parts = [(number, [size]) for number in numbers for size in session.batches] if acts else [
            (number, session.batches) for number in numbers]
        roles: Roles | None = None
        spent = 0.0
        for place_, (number, sizes) in enumerate(parts):
            self.progress.phase(f"loading the model on {_devices(number, self.cluster.devices[0].kind)}")
            roles = self._launched(roles, number, sizes)
            began = time.monotonic()
            self._measure(roles, number, sizes, (session.wanted.budget_s - spent) / (len(parts) - place_), life=place_)
            spent += time.monotonic() - began

    def _launched(self, before: Roles | None, number: int, sizes: Sequence[int]) -> Roles:
        """On so many devices; in place of those that there are."""
        prepared, placement = self.session.prepared, self._placement(number)
        config = prepared.config
        if before is not None and not config.env.name:
            before.move(placement, None)
            return before
        if before is not None:
            before.stop()
        if config.env.name:
            each = number * (config.env.halves or 2)
            config = replace(config, env=replace(config.env, count=-(-sizes[0] // each) * each))
        roles = Roles(replace(prepared, config=config, placement=placement), self.cluster)
        roles.launch(None)
        return roles

    def result(self, seconds: float) -> Profiled:
        devices = self.cluster.devices
        profile = self.observed.profile(devices[0].kind, len(devices))
        wanted = self.session.wanted.roles
        if wanted:
            profile = replace(profile, roles={name: role for name, role in profile.roles.items() if name in wanted})
        return Profiled(profile, self.observed.graph, self.observed.differences, seconds)

    def _placement(self, number: int) -> Placement:
        prepared = self.session.prepared
        return place(prepared.config, list(prepared.roles.values()), number, self.cluster.devices[0].kind)

    def _measure(self, roles: Roles, number: int, batches: Sequence[int], budget_s: float, life: int) -> None:
        """The first step, in which everything is new, is not counted."""
        session, deadline = self.session, time.monotonic() + budget_s * (1 - DECODING)
        rounds = [size for _ in range(session.wanted.repeat) for size in batches]
        sizes = [batches[-1], *rounds]
        ranks = {role: len(seats) for role, seats in roles.placement.items()}
        config = replace(session.prepared.config, steps=len(sizes))
        what = f"measuring on {_devices(number, self.cluster.devices[0].kind)}"
        unit = "environments" if config.env.name else "prompts"
        self.progress.phase(f"{what}: steps of {', '.join(map(str, batches))} {unit}")

        def on_step(report: StepReport) -> None:
            self.cluster.progressed()
            if report.number > 1:
                self.observed.add(report, ranks)
            if time.monotonic() > deadline and report.number > len(batches):
                flow.leave()

        stream = Batches(session.prepared.stream, sizes, config)
        flow = RunFlow(config, roles.groups, stream, 0, 0, on_step, life=life,
                       on_end=partial(self.observed.look, ranks), is_urgent=lambda number: True)
        try:
            with contextlib.suppress(Interlude):
                session.prepared.workflow.run(flow)
            for name, group in roles.groups.items():
                if "measure_decoding" in group.methods:
                    self.progress.phase(f"{what}: decode steps")
                    prompts = [prompt_of(item) for item in stream.batch(0)]
                    self.observed.add_decoding(name, flow.wait(group.measure_decoding(prompts, budget_s * DECODING)))
        except (KeyboardInterrupt, RlinfError):
            with contextlib.suppress(RlinfError):
                flow.cancel("the measurement was stopped", PATIENCE_S)
            raise


def _devices(number: int, kind: str) -> str:
    return f"{number} {kind} device{'s' * (number > 1)}"


def keep(profile: Profile, out: Path | None, is_whole: bool) -> Path | None:
    """Write it; where to. One that lacks roles is not put where a plan would find it. Raises UsageError."""
    path = out or (stored_as(profile) if is_whole else None)
    if path is not None:
        profile_file.save(profile, path)
    return path


def stored_as(profile: Profile) -> Path:
    """Where a profile is kept that nobody puts elsewhere: one file for what its numbers depend on."""
    known = json.dumps([profile.workflow, profile.hardware, dict(profile.versions), dict(profile.settings)], sort_keys=True)
    return profile_file.directory() / f"{profile.workflow}-{hashlib.sha256(known.encode()).hexdigest()[:12]}.json"
