"""What `rlinf eval` does: find the policy and the data, launch what an evaluation needs, and say what came out."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rlinf_cli.config.kinds import DEFAULT
from rlinf_cli.config.load import check, resolve
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.config.sections import RewardConfig
from rlinf_cli.errors import RlinfError, UsageError
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.devices import parse_devices
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.placement import Placement, RoleSpec, temporal
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.rl.success import CONFIDENCE
from rlinf_cli.runs.episodes import EpisodesEvaluation, EpisodesResult
from rlinf_cli.runs.evaluation import Evaluation, TaskResult
from rlinf_cli.runs.files import explained, logs_of
from rlinf_cli.runs.flow import LaunchedFlow
from rlinf_cli.runs.launch import terminate_as_interrupt
from rlinf_cli.runs.preflight import EVALUATED, admit_evaluation, open_evaluation
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.reference import Policy, find_policy
from rlinf_cli.runs.roles import load_worker
from rlinf_cli.runs.samples import SamplesWriter
from rlinf_cli.runs.videos import write_videos
from rlinf_cli.workflows.base import Role, Workflow

PATIENCE_S = 20.0
"""How long an interrupted evaluation may take to end its calls."""


@dataclass(frozen=True)
class EvalSession:
    """An evaluation that may start."""

    policy: Policy
    config: RunConfig
    evaluation: Evaluation | EpisodesEvaluation
    roles: Mapping[str, Role]
    plugins: Plugins


@dataclass(frozen=True)
class Evaluated:
    """What came of it."""

    session: EvalSession
    results: Sequence[TaskResult | EpisodesResult]
    devices: int
    seconds: float
    videos: Sequence[Path] = ()

    def document(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        config = self.session.config
        step = self.session.policy.checkpoint and self.session.policy.checkpoint.step
        tasks = [result.document() for result in self.results]
        videos = {"videos": list(map(str, self.videos))} if self.videos else {}
        if isinstance(self.session.evaluation, EpisodesEvaluation):
            return {"policy": self.session.policy.label, "step": step, "environment": config.env.name,
                    "deterministic": config.eval.temperature == 0, "seed": config.seed, "success": config.eval.success,
                    "devices": self.devices, "confidence": CONFIDENCE, "seconds": round(self.seconds, 3), "tasks": tasks,
                    **videos}
        return {
            "policy": self.session.policy.label, "step": step, "k": config.eval.k, "temperature": config.eval.temperature,
            "max_new_tokens": config.eval.max_new_tokens or config.rollout.max_new_tokens, "seed": config.seed,
            "reward": config.reward.name, "success": config.eval.success, "devices": self.devices,
            "confidence": CONFIDENCE, "seconds": round(self.seconds, 3), "tasks": tasks,
        }


def open_eval(name: str, overrides: Sequence[str], data: str | None, flags: Mapping[str, str | int | None],
              plugins: Plugins) -> EvalSession:
    """Resolve and check everything. `data`: `--data`; `flags`: other flags of `rlinf_cli.config.source`.

    A run is evaluated under its own configuration; a model needs to be told on what.
    """
    policy = find_policy(name, plugins)
    if policy.run is None:
        config = resolve([], overrides, {**flags, "model": name, "data": data}, plugins)
        if config.origin("data.name") == DEFAULT and not config.eval.data and not config.env.name:
            raise UsageError(f"say what to evaluate {name} on, with --data NAME or FILE")
    else:
        chosen = [*overrides, *([] if data is None else [f"eval.data={data}"])]
        other_reward = flags.get("reward") is not None or any(one.startswith("reward.name=") for one in overrides)
        with _inherited(policy.files[0], other_reward) as file:
            config = resolve([file], chosen, flags, plugins)
    check(config)
    workflow: Workflow = plugins.get("workflow", config.workflow).load()()
    # some workflows have the roles of an evaluation only where one is asked for
    evaluating = replace(config, eval=replace(config.eval, every=max(1, config.eval.every)))
    roles = {role.name: role for role in workflow.roles(evaluating) if role.name in EVALUATED}
    if not config.cluster.address:
        parse_devices(config.cluster.devices)
    return EvalSession(policy, config, open_evaluation(config, workflow, plugins), roles, plugins)


def evaluate(session: EvalSession, progress: Progress, out: Path | None = None) -> Evaluated:
    """Launch, answer, score. `out`: a file for every sample. Raises RlinfError; nothing is kept of an evaluation that is
    interrupted."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminate_as_interrupt())
        logs = stack.enter_context(logs_of("eval"))
        writer = None if out is None else stack.enter_context(_writer(out))
        acts = isinstance(session.evaluation, EpisodesEvaluation)
        config = session.config if acts else session.policy.told(session.config, session.plugins)
        evaluation = admit_evaluation(replace(session.evaluation, config=config), session.plugins,
                                      lambda text: progress.message("data", text))
        progress.phase("starting Ray")
        cluster = stack.enter_context(Cluster.start(config.cluster.devices, config.cluster.address, logs,
                                                    config.cluster.start_timeout_s, config.cluster.call_timeout_s))
        progress.phase("loading the model")
        flow = LaunchedFlow(config, _launch(session.roles, config, cluster, _arguments(session)))
        progress.phase("evaluating")
        results = _results(flow, evaluation)
        if writer is not None:
            writer.write(0, [sample for result in results for sample in result.samples])
        return Evaluated(session, results, len(cluster.devices), time.monotonic() - began, _videos(session.policy, results))


def _videos(policy: Policy, results: Sequence[TaskResult | EpisodesResult]) -> list[Path]:
    """Beside the run, or here where it is none."""
    step = 0 if policy.checkpoint is None else policy.checkpoint.step
    return [path for result in results for path in write_videos(policy.run or Path(), step, result.videos)]


def _results(flow: LaunchedFlow,
             evaluation: Evaluation | EpisodesEvaluation) -> Sequence[TaskResult | EpisodesResult]:
    try:
        return evaluation.results(flow.evaluate(evaluation, 0), 0)
    except (KeyboardInterrupt, RlinfError):
        flow.cancel("the evaluation was stopped", PATIENCE_S)
        raise


def _arguments(session: EvalSession) -> dict[str, dict[str, Any]]:
    """Role -> what its worker is told besides: a policy's weights are in a checkpoint that is no model."""
    checkpoint = session.policy.checkpoint
    if not isinstance(session.evaluation, EpisodesEvaluation) or checkpoint is None:
        return {}
    return {"rollout": {"policy": str(checkpoint.path)}}


def _launch(roles: Mapping[str, Role], config: RunConfig, cluster: Cluster,
            arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Group]:
    """All roles on all devices, whatever `placement` says: it is about training."""
    placement: Placement = temporal([RoleSpec(role.name, role.ranks) for role in roles.values()], len(cluster.devices),
                                    cluster.devices[0].kind)
    groups = {name: cluster.launch(name, load_worker(role.worker), placement[name], config, **arguments.get(name, {}))
              for name, role in roles.items()}
    for group in groups.values():
        group.ready(config.cluster.start_timeout_s)
    return groups


@contextlib.contextmanager
def _inherited(file: Path, other_reward: bool) -> Iterator[Path]:
    """The run's configuration; with another reward, without what belongs to the run's own."""
    if not other_reward:
        yield file
        return
    import yaml

    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    kept = {field.name for field in fields(RewardConfig)} - {"name"}
    document["reward"] = {name: value for name, value in document.get("reward", {}).items() if name in kept}
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, file.name)
        copy.write_text(yaml.safe_dump(document), encoding="utf-8")
        yield copy


def _writer(out: Path) -> SamplesWriter:
    with explained(f"cannot write {out}", UsageError):
        out.unlink(missing_ok=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        return SamplesWriter(out, 0)
