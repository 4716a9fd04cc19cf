"""The processes of a run: a private Ray or one that is there already, the controller, and the groups of workers."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.flow.client import client, connect
from rlinf_cli.flow.controller import ControllerAddress
from rlinf_cli.flow.crew import Crew, Part, actor_of
from rlinf_cli.flow.devices import Device, Node, devices_of, parse_devices, this_node
from rlinf_cli.flow.errors import SerializationError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.host import register_stores
from rlinf_cli.flow.incident import Incident
from rlinf_cli.flow.nodes import living_nodes
from rlinf_cli.flow.private_ray import PrivateRay, join, said_to
from rlinf_cli.flow.seat import Plan, Seat
from rlinf_cli.flow.services import ControllerHost, NodeStoreHost
from rlinf_cli.flow.stall import StallWatch
from rlinf_cli.flow.supervision import Supervision
from rlinf_cli.flow.tickets import Tickets
from rlinf_cli.flow.worker import Worker, methods

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
"""What workers that are not busy may take to close."""
_OBJECT_STORE = {"cpu": 200 * 2**20, "cuda": 2 * 2**30}
"""Bytes of a private Ray's object store: channels and weights do not use it."""


class Cluster:
    """Made by `Cluster.start`. Use it as a context manager, in a thread that outlives it."""

    def __init__(self, nodes: Sequence[Node], devices: Sequence[Device], directories: tuple[Path, Path],
                 timeouts: tuple[float, float, float], restarts: int, shared: str, resources: contextlib.ExitStack,
                 journal: Path | None = None) -> None:
        self.devices = tuple(devices)
        self._directory, self._run_directory = directories
        self._start_timeout, self._call_timeout, stall_timeout = timeouts
        self._resources = resources
        self._here = ray.get_runtime_context().get_node_id()
        self._nodes = {node.id: node for node in nodes}
        self._has_further_nodes = len(ray.nodes()) > 1  # for Ray, that is: there may be some that have just been lost
        self._groups: dict[str, Group] = {}
        self._address, self._stores = self._start_channels(shared, journal and journal.resolve())
        self._launches, self._tickets = itertools.count(1), Tickets(client())
        self._supervision = Supervision(self._here, self.devices, restarts, stall_timeout, self._start_timeout)
        self._stall = StallWatch(self._stores[self._nodes[self._here].name], lambda: list(self._groups.values()), stall_timeout,
                                 self._supervision.handle, lambda incident: self._supervision.on_incident(incident))
        resources.callback(self._close_workers)

    @classmethod
    def start(cls, devices: str = "auto", address: str = "", directory: Path = Path("logs"),
              start_timeout: float = 300.0, call_timeout: float = 3600.0, run_directory: Path | None = None,
              journal: Path | None = None, stall_timeout: float = 300.0, restarts: int = 3) -> Cluster:
        """Start a private Ray, or join the one at `address`.

        `devices`: `auto`, `cpu:N` or `cuda:N` · `directory`: for the workers' logs · `start_timeout`: seconds until a
        worker must be there · `call_timeout`: seconds that a call may take when `wait` is not told otherwise ·
        `run_directory`: what workers know by this name, by default `directory` · `journal`: a file for all that the
        controller decides and what it follows from · `stall_timeout`: seconds without any progress after which all workers
        write down where they are · `restarts`: times that the processes of a role may be started again between two calls of
        `progressed`.

        Raises UsageError, CapacityError when there are not so many devices, RunError when Ray does not start.
        """
        if ray.is_initialized():
            raise UsageError("Ray is in use in this process already: shut the other cluster down first")
        directories = directory.resolve(), (run_directory or directory).resolve()
        with contextlib.ExitStack() as stack:
            if address:
                nodes, shared = _join(address, directories[0], stack), ""
                request = parse_devices(devices, nodes)
            else:
                request = parse_devices(devices)
                private = PrivateRay(request.count + 1, _OBJECT_STORE[request.kind], directories[0] / "ray.log")
                stack.callback(private.stop)
                nodes, shared = [this_node(node_id=ray.get_runtime_context().get_node_id())], private.shared_directory
            cluster = cls(nodes, devices_of(request, nodes), directories,
                          (start_timeout, call_timeout, stall_timeout), restarts, shared, stack, journal)
            cluster._resources = stack.pop_all()
            return cluster

    def launch(self, role: str, worker: type[Worker], placement: Sequence[Sequence[int]], *args: Any,
               env: Mapping[str, str] | None = None, restartable: bool = False, **kwargs: Any) -> Group:
        """Start a role: one process a rank; `placement` lists each rank's devices. Returns at once, `Group.ready` waits.

        `args` and `kwargs` go to the worker's constructor. `env`: environment variables of these processes ·
        `restartable`: a rank that dies is started again, and what it was called for and has not answered begins anew; its
        worker has no `init_method`. Raises SerializationError when they cannot be sent.
        """
        return self.launch_fused([Part(role, worker, args, kwargs)], placement, env, restartable)[0]

    def launch_fused(self, parts: Sequence[Part], placement: Sequence[Sequence[int]],
                     env: Mapping[str, str] | None = None, restartable: bool = False) -> list[Group]:
        """Start roles that share one process a rank; a group for each, in their order. Otherwise as `launch`."""
        for part in parts:
            if part.role in self._groups:
                raise ValueError(f"role '{part.role}' has been launched before")
        plans = [Plan(_pickled(part.role, part.worker, part.args, part.kwargs), self._address, self._stores) for part in parts]
        process, launch = "+".join(part.role for part in parts), next(self._launches)
        seats = [[replace(self._seat(part.role, rank, len(placement), devices, env or {}, process), launch=launch)
                  for part in parts] for rank, devices in enumerate(placement)]
        crew = Crew(parts, plans, seats, self._place, restartable)
        groups = [Group(part.role, [mine[tenant] for mine in seats], crew.actors, methods(part.worker), self._call_timeout,
                        self._supervision.watch, tenant, restartable) for tenant, part in enumerate(parts)]
        for group in groups:
            self._groups[group.role] = group
            self._tickets.enrol(group)
        crew.man(groups, self._start_timeout)
        self._supervision.add(crew)
        return groups

    def partners(self, role: str) -> list[Group]:
        """The groups that share a role's processes, its own included: they live and end together."""
        process = self._groups[role].seats[0].process
        return [group for group in self._groups.values() if group.seats[0].process == process]

    def stop(self, group: Group) -> None:
        """End a role, and those that share its processes. What is under way there is lost; its name can be launched again."""
        crew = self._supervision.crew_of(group.role)
        self._supervision.leave(crew)
        self._supervision.stopped(crew)
        self._forget(crew)
        _close(crew.groups)
        self._end(crew)

    def _end(self, crew: Crew) -> None:
        for rank in range(len(crew.actors)):
            crew.kill(rank)
        crew.dismiss(range(len(crew.actors)))

    def _forget(self, crew: Crew) -> None:
        for group in crew.groups:
            self._tickets.dismiss(group.role)
            del self._groups[group.role]

    # ---- deaths ----

    @property
    def before_resume(self) -> Callable[[Group, int], str]:
        """Called, on a thread of its own, when a rank has been started again and before its calls are: brings it what it
        needs, such as the current weights, and says what that was (`weights v17`). When it raises RlinfError, the rank is
        started again; any other exception ends the run."""
        return self._supervision.before_resume

    @before_resume.setter
    def before_resume(self, hook: Callable[[Group, int], str]) -> None:
        self._supervision.before_resume = hook

    @property
    def on_incident(self) -> Callable[[Incident], None]:
        """Called, on threads of the cluster's own and perhaps on several at once, with everything that goes wrong and is
        dealt with here."""
        return self._supervision.on_incident

    @on_incident.setter
    def on_incident(self, hook: Callable[[Incident], None]) -> None:
        self._supervision.on_incident = hook

    def living(self) -> tuple[Device, ...]:
        """The devices whose nodes can be reached."""
        nodes = living_nodes()
        return tuple(device for device in self.devices if device.node_id in nodes)

    def progressed(self) -> None:
        """A step was trained: all restarts are there again."""
        self._supervision.progressed()

    def may_recover(self, error: BaseException) -> bool:
        """Whether the error is the death of a role that may be launched again."""
        return self._supervision.may_recover(error)

    def relaunch(self, role: str, arguments: Mapping[str, Mapping[str, Any]] | None = None) -> list[Group]:
        """End what is left of a role, and of those that share its processes, and launch them again on those of its devices whose
        nodes are alive; the new groups. `arguments`: by role, keywords of workers that are made with others than before.

        Raises RunError when no node is.
        """
        crew = self._supervision.crew_of(role)
        ending = self._supervision.leave(crew)
        self._end(crew)
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=_CLOSE_S)  # the devices' memory is free then
        living = living_nodes()
        placement = [seats[0].devices for seats in crew.seats if seats[0].node_id in living]
        if not placement:
            nodes = ", ".join(sorted({seats[0].node for seats in crew.seats}))
            raise RunError(f"{role} cannot be started again: all its devices were on {nodes}, which is gone; replace the "
                           "node, or go on without its devices (cluster.devices, placement)")
        self._forget(crew)
        changed = arguments or {}
        parts = [replace(part, kwargs=changed.get(part.role, part.kwargs)) for part in crew.parts]
        return self.launch_fused(parts, placement, crew.seats[0][0].env, crew.restartable)

    def shutdown(self) -> None:
        """End all processes and remove what they kept in memory and in temporary directories. Safe to repeat."""
        self._resources.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    def _seat(self, role: str, rank: int, world: int, devices: Sequence[int], env: Mapping[str, str], process: str) -> Seat:
        mine = [self.devices[index] for index in devices]
        first = mine[0]
        if len({device.node_id for device in mine}) > 1:
            raise ValueError(f"{role}[{rank}]: devices {list(devices)} are on several nodes: a rank is one process")
        return Seat(role, rank, world, tuple(devices), first.kind, tuple(device.local for device in mine), first.node,
                    first.node_id, first.address, self._directory, self._run_directory, env, self._call_timeout, process)

    def _place(self, node_id: str) -> dict[str, Any]:
        """Ray's options for an actor on a node. They ask for no resource: devices are ours."""
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0}
        if self._has_further_nodes:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return options

    def _start_channels(self, shared: str, journal: Path | None) -> tuple[ControllerAddress, dict[str, Any]]:
        """The controller beside the driver, and on every further node somebody who reads its shared memory for others."""
        home = self._nodes[self._here]
        controller = actor_of(ControllerHost, self._place(home.id)).remote(
            self._directory, secrets.token_hex(32), home.address, shared, home.name, journal)
        further = {device.node: device.node_id for device in self.devices if device.node_id != home.id}
        try:
            address: ControllerAddress = ray.get(controller.address.remote(), timeout=self._start_timeout)
            stores = {name: actor_of(NodeStoreHost, self._place(node_id)).remote(self._directory, address, name)
                      for name, node_id in further.items()}
            ray.get([store.__ray_ready__.remote() for store in stores.values()], timeout=self._start_timeout)
        except ray.exceptions.RayError as error:
            raise RunError(f"the channels could not be started: {str(error).strip().splitlines()[-1]}") from error
        client = connect(address, "driver", home.name)
        stores[home.name] = controller
        self._resources.callback(_stop_channels, list(stores.values()))
        self._resources.callback(client.close)
        register_stores(client, stores)
        return address, stores

    def _close_workers(self) -> None:
        """Let the workers that are not busy close. The others are killed with Ray."""
        self._stall.stop()
        self._supervision.stop()
        _close(list(self._groups.values()))


def _join(address: str, directory: Path, stack: contextlib.ExitStack) -> list[Node]:
    """Take part in a cluster; its nodes, this one first."""
    stack.enter_context(said_to(directory / "ray.log"))
    join(address)
    stack.callback(ray.shutdown)
    here = ray.get_runtime_context().get_node_id()
    living = living_nodes()  # what has just been lost is still there for Ray
    alive = sorted((node for node in ray.nodes() if node["NodeID"] in living),
                   key=lambda node: (node["NodeID"] != here, node["NodeManagerAddress"], node["NodeID"]))
    return [Node(f"node-{number}", node["NodeID"], node["NodeManagerAddress"],
                 int(node["Resources"].get("CPU", 0)), tuple(map(str, range(int(node["Resources"].get("GPU", 0))))))
            for number, node in enumerate(alive)]


def _close(groups: Sequence[Group]) -> None:
    busy = {group.seats[rank].host for group in groups for rank in group.alive if not group.is_idle(rank)}
    hosts = {group.seats[rank].host: group.actors[rank] for group in groups for rank in group.alive}
    closing = {actor.close.remote(): host for host, actor in hosts.items() if host not in busy}
    ended = ray.wait(list(closing), num_returns=len(closing), timeout=_CLOSE_S)[0] if closing else []
    for ref in ended:
        _closed(closing[ref], ref)


def _closed(identity: str, ref: Any) -> None:
    try:
        ray.get(ref)
    except ray.exceptions.RayError as error:
        log.warning("%s did not close: %s", identity, str(error).strip().splitlines()[-1])


def _stop_channels(actors: Sequence[Any]) -> None:
    with contextlib.suppress(ray.exceptions.RayError):  # dead, or too slow: they are killed with Ray
        ray.get([actor.stop.remote() for actor in actors], timeout=_CLOSE_S)


def _pickled(role: str, worker: type[Worker], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    try:
        blob: bytes = cloudpickle.dumps((worker, args, kwargs))
    except Exception as error:  # pickling runs the arguments' own code
        raise SerializationError(f"{role}: the arguments of {worker.__name__} cannot be sent to another process: "
                                 f"{error}") from error
    return blob
