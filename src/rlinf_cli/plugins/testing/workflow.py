"""Whether a workflow keeps the contract of `rlinf_cli.api.Workflow`: it is run without Ray, on roles that only note down what
they are asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rlinf_cli.api import Role, RunConfig, Worker, ports
from rlinf_cli.config.load import resolve as configuration
from rlinf_cli.plugins.extension import resolve
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of

STEPS = 2


def check_workflow(target: Any, config: RunConfig | None = None) -> None:
    """Raise AssertionError unless its roles have workers, and what it asks of them fits: methods that there are, and channels
    that somebody fills and somebody empties.

    `target`: the class, built without arguments, or its extension. `config`: of a run (default: all keys at their defaults).
    """
    workflow_class, _ = target_of(target, None)
    case = _Case(workflow_class(), config or configuration([], [], {}, plugins()))
    run_all(case.has_roles, case.trains, case.evaluates)


class RecordingChannel:
    """Notes who puts into it and who takes from it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sources: list[str] = []
        self.takers: list[str] = []


class RecordingGroup:
    """Stands for the ranks of a role: a call is checked against the worker's class, and answered with nothing."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._worker: type = resolve(role.worker)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self._worker, name, None)
        require(
            inspect.isfunction(method) and not name.startswith("_") and name != "close",
            f"role '{self._role.name}' is asked for {name}(), which {self._worker.__name__} does not offer",
        )
        assert method is not None

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._called(name, method, args, kwargs)

        return call

    def _called(self, name: str, method: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> str:
        where = f"{self._role.name}.{name}()"
        try:
            given = inspect.signature(method).bind(None, *args, **kwargs).arguments
        except TypeError as error:
            raise AssertionError(f"{where}: {error}") from error
        declared = ports(method)
        for argument, value in given.items():
            require(
                (argument in declared) == isinstance(value, RecordingChannel),
                f"{where}: its argument '{argument}' must {'' if argument in declared else 'not '}be a channel; it is {a(value)}",
            )
            if isinstance(value, RecordingChannel):
                (value.sources if declared[argument].direction == "out" else value.takers).append(where)
        return where


class RecordingStep:
    """A step whose channels are kept."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.made: list[RecordingChannel] = []

    def channels(self, *names: str) -> list[RecordingChannel]:
        new = [RecordingChannel(name) for name in names]
        self.made += new
        return new

    def feed(self, prompts: RecordingChannel, answers: RecordingChannel | None = None) -> None:
        prompts.sources.append("step.feed()")


class RecordingFlow:
    """A run of two steps."""

    def __init__(self, config: RunConfig, roles: Sequence[Role], training: bool = True) -> None:
        self.config, self.training = config, training
        self._groups = {role.name: RecordingGroup(role) for role in roles}
        self.done: list[RecordingStep] = []

    def groups(self, *roles: str) -> list[RecordingGroup]:
        for role in roles:
            require(
                role in self._groups,
                f"run() asks for role '{role}', which roles() does not have ({', '.join(self._groups)})",
            )
        return [self._groups[role] for role in roles]

    def steps(self) -> Iterator[RecordingStep]:
        for index in range(STEPS):
            self.done.append(RecordingStep(index))
            yield self.done[-1]

    def wait(self, call: Any) -> list[Any]:
        require(isinstance(call, str), f"flow.wait() takes what a call to a group returned, not {a(call)}")
        return [True]


class _Case:
    def __init__(self, workflow: Any, config: RunConfig) -> None:
        self._workflow, self._config = workflow, config

    def has_roles(self) -> None:
        roles = self._roles()
        require(
            bool(roles) and all(isinstance(role, Role) for role in roles),
            f"roles() must give rlinf_cli.api.Role; it gave {roles!r}",
        )
        names = [role.name for role in roles]
        require(len(set(names)) == len(names), f"roles() has a name twice: {', '.join(names)}")
        for role in roles:
            worker = resolve(role.worker)
            require(
                inspect.isclass(worker) and issubclass(worker, Worker),
                f"the worker of role '{role.name}', {role.worker}, must be a class that inherits from rlinf_cli.api.Worker",
            )
        require(
            any(role.stateful for role in roles),
            "a role must be stateful: what is trained writes the checkpoint and gets it on resume",
        )

    def trains(self) -> None:
        flow = RecordingFlow(self._config, self._roles())
        self._workflow.run(flow)
        require(
            len(flow.done) == STEPS,
            f"run() took {len(flow.done)} of {STEPS} steps: it must go through flow.steps() to the end",
        )
        acts = any(role.name == "environment" for role in self._roles())  # and needs no prompts
        for step in flow.done:
            require(
                acts or any("step.feed()" in channel.sources for channel in step.made),
                "a step must feed a channel: step.feed(prompts)",
            )
            _require_connected(step.made)

    def evaluates(self) -> None:
        config = replace(self._config, eval=replace(self._config.eval, every=1))
        step, flow = RecordingStep(0), RecordingFlow(config, list(self._workflow.roles(config)), training=False)
        scored = self._workflow.evaluate(flow, step)
        require(
            isinstance(scored, RecordingChannel) and bool(scored.sources),
            "evaluate() must give the channel into which scored groups are put",
        )
        _require_connected([channel for channel in step.made if channel is not scored])

    def _roles(self) -> list[Role]:
        return list(self._workflow.roles(self._config))


def _require_connected(channels: Sequence[RecordingChannel]) -> None:
    for channel in channels:
        require(
            bool(channel.sources),
            f"nobody puts into channel '{channel.name}'"
            f"{f': {channel.takers[0]} would wait for ever' if channel.takers else ''}",
        )
        require(bool(channel.takers), f"nobody takes from channel '{channel.name}', which {channel.sources[0]} fills")
