"""The roles of a run and their processes: how they are launched, and what a new process is given."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.crew import Part
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.placement import Placement
from rlinf_cli.runs.checkpoints import Checkpoint
from rlinf_cli.runs.embodied import is_beside
from rlinf_cli.runs.placing import place
from rlinf_cli.runs.preflight import Prepared
from rlinf_cli.workflows.base import Role


class Roles:
    """`groups` by role, once they are launched."""

    def __init__(self, prepared: Prepared, cluster: Cluster) -> None:
        self._config, self._roles, self._cluster = prepared.config, prepared.roles, cluster
        devices = cluster.devices
        self.placement = prepared.placement or place(self._config, list(self._roles.values()), len(devices), devices[0].kind)
        self.groups: dict[str, Group] = {}

    @property
    def trained(self) -> list[Group]:
        """What holds the state that is trained: the actor, and the critic where there is one."""
        return [self.groups[name] for name, role in self._roles.items() if role.stateful]

    def launch(self, start: Checkpoint | None) -> None:
        """All roles, from a checkpoint or from the beginning. Raises as `Group.ready`."""
        for names in self.placement.processes():
            self._launch(names, start)
        self._await_ready()

    def move(self, placement: Placement, start: Checkpoint | None) -> None:
        """Run the roles as another placement says; those that it leaves where they are, and as they are, stay. The role that
        holds the state goes on from a checkpoint. Raises as `Group.ready`."""
        before = {names: self._seating(names) for names in self.placement.processes()}
        self.placement = placement
        after = {names: self._seating(names) for names in placement.processes()}
        for names, seating in before.items():
            if after.get(names) != seating:
                self._cluster.stop(self.groups[names[0]])
        for names, seating in after.items():
            if before.get(names) != seating:
                self._launch(names, start)
        self._await_ready()

    def stop(self) -> None:
        """End all roles."""
        for names in self.placement.processes():
            self._cluster.stop(self.groups[names[0]])

    def _launch(self, names: tuple[str, ...], start: Checkpoint | None) -> None:
        parts = [Part(name, load_worker(self._roles[name].worker), (self._config,), self._arguments(name, start))
                 for name in names]
        restartable = not any(self._roles[name].stateful for name in names)
        launched = self._cluster.launch_fused(parts, self.placement[names[0]], restartable=restartable)
        self.groups |= zip(names, launched, strict=True)

    def _seating(self, names: tuple[str, ...]) -> object:
        """All that a placement has to do with how these roles, which share processes, are launched."""
        return self.placement[names[0]], [self._arguments(name, None) for name in names]

    def relaunch(self, start: Checkpoint | None) -> None:
        """What holds the state, whose processes are gone or are ended now, and the roles that share them."""
        for names in self.placement.processes():
            stateful = [name for name in names if self._roles[name].stateful]
            if stateful:
                arguments = {name: self._arguments(name, start) for name in stateful}
                for group in self._cluster.relaunch(stateful[0], arguments):
                    self.groups[group.role] = group
        self._await_ready()

    def send_weights(self, group: Group, rank: int) -> str:
        """Give a process that was started anew the weights that the others have; which ones, in words."""
        sender = next((one for one in self.groups.values() if "send_weights" in one.methods), None)
        if sender is None or "update_weights" not in group.methods:
            return ""
        version = max(sender.send_weights(group.on(rank)).wait(self._config.cluster.call_timeout_s))
        return f"weights v{version}" if version >= 0 else ""

    def _await_ready(self) -> None:
        for group in self.groups.values():
            group.ready(self._config.cluster.start_timeout_s)

    def _arguments(self, name: str, start: Checkpoint | None) -> dict[str, Any]:
        """What a worker is made with, beside the configuration."""
        role, placement = self._roles[name], self.placement
        arguments: dict[str, Any] = {}
        if role.stateful and start is not None:
            arguments |= {"checkpoint": str(start.path), "step": start.step}
        if name in placement.granularity:
            arguments["granularity"] = placement.granularity[name]
        if "rollout" in placement and _takes(role, "stream"):
            arguments["stream"] = not set(placement.devices("rollout")) & set(placement.devices(name))
        if _takes(role, "beside"):
            arguments["beside"] = is_beside(placement)
        return arguments


def _takes(role: Role, argument: str) -> bool:
    """Whether its worker wants to know: `stream`, if its input is made on devices of others; `beside`, if environments and
    policy share their processes."""
    return argument in inspect.signature(load_worker(role.worker)).parameters


def load_worker(reference: str) -> type:
    """The class of `Role.worker`."""
    module, _, name = reference.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found
