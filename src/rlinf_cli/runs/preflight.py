"""Everything that can be checked before anything expensive starts, in well under two seconds and without Ray or torch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rlinf_cli.config.load import check
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.rows import Row
from rlinf_cli.data.sources import Source, fingerprint
from rlinf_cli.data.stream import PromptStream
from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.flow.devices import DeviceRequest, parse_devices
from rlinf_cli.flow.placement import Placement, RoleSpec, fuse, spatial, temporal
from rlinf_cli.flow.placement_text import is_file, is_line, load_placement, parse_placement
from rlinf_cli.models.check import check_model
from rlinf_cli.plugins.loader import Plugins
from rlinf_cli.plugins.references import check_function
from rlinf_cli.runs.data import evaluation_sources, training_sources, without_overlong
from rlinf_cli.runs.evaluation import Evaluation, evaluation_on
from rlinf_cli.runs.lifecycle import check_loggers
from rlinf_cli.runs.planning import placement_from
from rlinf_cli.scheduling.plan_file import is_plan
from rlinf_cli.workers.surplus import asked
from rlinf_cli.workflows.base import Role, Workflow

EVALUATED = ("rollout", "reward")
"""Roles of an evaluation, of whatever workflow."""
SCORING = ("reference", "critic")
"""Roles that score with a model of their own, and so lie with what trains."""
AUTO = "auto"
"""The placement that a run finds for itself. It begins with all roles in turn."""
MODES = {AUTO: temporal, "temporal": temporal, "spatial": spatial}
"""Placements by a rule."""


@dataclass(frozen=True)
class Prepared:
    """A run that may start."""

    config: RunConfig
    workflow: Workflow
    roles: Mapping[str, Role]
    stream: PromptStream
    devices: DeviceRequest | None
    placement: Placement | None
    """None when the devices are those of an existing cluster, which are not known yet."""
    evaluation: Evaluation | None = None
    """None when nothing is evaluated between steps."""

    @cached_property
    def fingerprint(self) -> str:
        """Of the data, so that a resume sees when it is another one; its files are read for it."""
        return fingerprint(self.stream.sources)


def prepare(config: RunConfig, plugins: Plugins) -> Prepared:
    """Check configuration, model, data, reward, devices and placement; raises RlinfError at the first that is wrong."""
    check(config)
    check_loggers(config, plugins)
    check_model(config.model.name, plugins)
    workflow: Workflow = plugins.get("workflow", config.workflow).load()()
    roles = {role.name: role for role in workflow.roles(config)}
    sources = training_sources(config, plugins, supervised="examples" in roles)
    _check_rows(config, roles, [source for source in sources if not source.deferred])
    stream = PromptStream(sources, _per_batch(config, roles), config.seed, config.data.shuffle)
    devices = None if config.cluster.address else parse_devices(config.cluster.devices)
    placement = None if devices is None else place(config, list(roles.values()), devices.count, devices.kind)
    evaluation = open_evaluation(config, workflow, plugins) if config.eval.every else None
    return Prepared(config, workflow, roles, stream, devices, placement, evaluation)


def open_evaluation(config: RunConfig, workflow: Workflow, plugins: Plugins) -> Evaluation:
    """The evaluation that `eval.*` describes; raises RlinfError where its data or the reward cannot be used."""
    evaluation = evaluation_on(evaluation_sources(config, plugins), config, workflow)
    _check_rows(config, EVALUATED, [task.source for task in evaluation.tasks if not task.source.deferred])
    return evaluation


def admit_evaluation(evaluation: Evaluation, plugins: Plugins, say: Callable[[str], None]) -> Evaluation:
    """As `admit`."""
    config, sources = evaluation.config, [task.source for task in evaluation.tasks]
    _check_rows(config, EVALUATED, [source for source in sources if source.deferred])
    return evaluation_on(without_overlong(sources, config, plugins, say), config, evaluation.workflow)


def admit(prepared: Prepared, plugins: Plugins, say: Callable[[str], None]) -> Prepared:
    """The run without the prompts that are too long, of which `say` is told; its hub data sets are looked up for it.

    Raises UsageError as `prepare` does, for what a hub data set holds, and as `without_overlong`.
    """
    config, sources = prepared.config, prepared.stream.sources
    _check_rows(config, prepared.roles, [source for source in sources if source.deferred])
    kept = without_overlong(sources, config, plugins, say)
    evaluation = prepared.evaluation and admit_evaluation(prepared.evaluation, plugins, say)
    stream = PromptStream(kept, prepared.stream.per_batch, config.seed, config.data.shuffle)
    return replace(prepared, stream=stream, evaluation=evaluation)


def _per_batch(config: RunConfig, roles: Container[str]) -> int:
    """Prompts that a step asks: rows that are learned as they are need no surplus."""
    return config.rollout.prompts if "examples" in roles else asked(config.rollout.prompts, config.rollout.overprovision)


def _check_rows(config: RunConfig, roles: Container[str], sources: Iterable[Source]) -> None:
    """Whether the first row of each source has what is trained on: something to learn, or what the reward reads."""
    for source in sources:
        first = source.row(0)
        if "reward" in roles:
            _check_reward(config, first, source.name)


def _check_reward(config: RunConfig, first: Row, name: str) -> None:
    """Whether the rewards are there, and the data has what they read."""
    for part in config.parts("reward"):
        if part.extension is None:
            check_function(part.name, first.columns)
        elif getattr(part.settings, "needs_answer", False) and first.answer is None:
            raise UsageError(f"reward.name={part.name} compares with an answer, but {name} has none: "
                             "name its column with data.answer_key, or choose another reward")
        for column in getattr(part.settings, "needs_columns", ()):
            if column not in first.columns:
                raise UsageError(f"reward.name={part.name} needs column '{column}', which {name} does not have (columns: "
                                 f"{', '.join(first.columns) or 'none'}){did_you_mean(column, first.columns)}")


def cautions(prepared: Prepared) -> Iterator[str]:
    """What the user should know of the configuration before it runs, a sentence each."""
    config, rollout = prepared.config, prepared.config.rollout
    if config.deterministic and "rollout" in prepared.roles and not hasattr(config.settings("engine"), "batch_invariant"):
        yield (f"deterministic=true: engine.name={config.engine.name} has no key batch_invariant, so that the last bits of what "
               "it generates may depend on what else it generates at the time, and so on the placement")
    if "examples" not in prepared.roles and rollout.is_truncated:
        chosen = ", ".join(f"rollout.{name}={value:g}" for name, value, off in (
            ("top_k", rollout.top_k, 0), ("top_p", rollout.top_p, 1), ("min_p", rollout.min_p, 0)) if value != off)
        yield (f"{chosen} truncates the distribution that tokens are drawn from, which the trainer does not know: it takes "
               "ratios to its own log-probabilities, and any mismatch with the engine goes unseen and uncorrected")


def place(config: RunConfig, roles: Sequence[Role], devices: int, kind: str) -> Placement:
    """The placement that the configuration asks for on so many devices."""
    specs = [RoleSpec(role.name, role.ranks, role.stateful or role.name in SCORING, role.chunked) for role in roles]
    if is_file(config.placement) and is_plan(Path(config.placement)):
        placement = placement_from(Path(config.placement), config, roles, devices, kind)
    else:
        placement = _placement(config, specs, devices, kind)
    return fuse(placement) if config.cluster.fused else placement


def _placement(config: RunConfig, roles: Sequence[RoleSpec], devices: int, kind: str) -> Placement:
    text = config.placement
    if text in MODES:
        return MODES[text](roles, devices, kind)
    if is_file(text):
        return load_placement(Path(text), roles, devices, kind)
    if is_line(text):
        return parse_placement(text, roles, devices, kind)
    raise UsageError(f"placement={text} (from {config.origin('placement')}) is no mode, file or assignment"
                     f"{did_you_mean(text, MODES)}: write auto, temporal, spatial, FILE.yaml, or which roles run where, as in "
                     "rollout+reward:0-1,actor:1")
