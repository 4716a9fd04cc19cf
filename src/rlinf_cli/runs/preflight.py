"""Everything that can be checked before anything expensive starts, in well under two seconds and without Ray or torch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
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
from rlinf_cli.flow.placement import Placement
from rlinf_cli.models.check import check_model
from rlinf_cli.plugins.loader import Plugins
from rlinf_cli.plugins.references import check_function
from rlinf_cli.runs.agents import check_agents, uses_agents
from rlinf_cli.runs.data import evaluation_sources, training_sources, without_overlong
from rlinf_cli.runs.embodied import acts, check_embodied, check_ranks
from rlinf_cli.runs.episodes import EpisodesEvaluation, episodes_evaluation
from rlinf_cli.runs.evaluation import Evaluation, evaluation_on
from rlinf_cli.runs.lifecycle import check_loggers
from rlinf_cli.runs.placing import Beginning, begin
from rlinf_cli.workers.surplus import asked
from rlinf_cli.workflows.base import Role, Workflow

EVALUATED = ("environment", "agent", "rollout", "reward")
"""Roles of an evaluation, of whatever workflow."""


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
    evaluation: Evaluation | EpisodesEvaluation | None = None
    """None when nothing is evaluated between steps."""
    beginning: Beginning | None = None
    """Why it is this placement, and whether it stays; None as `placement`."""

    @cached_property
    def fingerprint(self) -> str:
        """Of the data, so that a resume sees when it is another one; its files are read for it."""
        return fingerprint(self.stream.sources)


def prepare(config: RunConfig, plugins: Plugins, own: Path | None = None) -> Prepared:
    """Check configuration, model, data, reward, devices and placement; raises RlinfError at the first that is wrong. `own`: a
    profile that the run has measured before."""
    check(config)
    check_loggers(config, plugins)
    workflow: Workflow = plugins.get("workflow", config.workflow).load()()
    roles = {role.name: role for role in workflow.roles(config)}
    if acts(roles):
        check_embodied(config, plugins)
    else:
        check_model(config.model.name, plugins)
    if uses_agents(roles):
        check_agents(config)
    sources = () if acts(roles) else training_sources(config, plugins, supervised="examples" in roles)
    _check_rows(config, roles, [source for source in sources if not source.deferred])
    stream = PromptStream(sources, _per_batch(config, roles), config.seed, config.data.shuffle)
    devices = None if config.cluster.address else parse_devices(config.cluster.devices)
    evaluation = open_evaluation(config, workflow, plugins) if config.eval.every else None
    prepared = Prepared(config, workflow, roles, stream, devices, None, evaluation)
    return prepared if devices is None else placed(prepared, devices.count, devices.kind, own)


def placed(prepared: Prepared, devices: int, kind: str, own: Path | None = None) -> Prepared:
    """On so many devices; raises UsageError or CapacityError as `begin`."""
    beginning = begin(prepared.config, list(prepared.roles.values()), devices, kind, own)
    if acts(prepared.roles):
        check_ranks(prepared.config, beginning.placement)
    return replace(prepared, placement=beginning.placement, beginning=beginning)


def open_evaluation(config: RunConfig, workflow: Workflow, plugins: Plugins) -> Evaluation | EpisodesEvaluation:
    """The evaluation that `eval.*` describes; raises RlinfError where its data, the reward or the environment cannot be
    used."""
    if config.env.name:
        return episodes_evaluation(config, workflow)
    evaluation = evaluation_on(evaluation_sources(config, plugins), config, workflow)
    _check_rows(config, EVALUATED, [task.source for task in evaluation.tasks if not task.source.deferred])
    return evaluation


def admit_evaluation(evaluation: Evaluation | EpisodesEvaluation, plugins: Plugins,
                     say: Callable[[str], None]) -> Evaluation | EpisodesEvaluation:
    """As `admit`."""
    if isinstance(evaluation, EpisodesEvaluation):
        return evaluation
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
    yield from () if prepared.beginning is None else prepared.beginning.notes
    if config.deterministic and "rollout" in prepared.roles and not hasattr(config.settings("engine"), "batch_invariant"):
        yield (f"deterministic=true: engine.name={config.engine.name} has no key batch_invariant, so that the last bits of what "
               "it generates may depend on what else it generates at the time, and so on the placement")
    if "examples" not in prepared.roles and rollout.is_truncated:
        chosen = ", ".join(f"rollout.{name}={value:g}" for name, value, off in (
            ("top_k", rollout.top_k, 0), ("top_p", rollout.top_p, 1), ("min_p", rollout.min_p, 0)) if value != off)
        yield (f"{chosen} truncates the distribution that tokens are drawn from, which the trainer does not know: it takes "
               "ratios to its own log-probabilities, and any mismatch with the engine goes unseen and uncorrected")
