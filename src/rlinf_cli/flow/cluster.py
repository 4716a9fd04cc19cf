"""The processes of a run: a private Ray or one that is there already, the controller, and the groups of workers."""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.flow.client import connect
from rlinf_cli.flow.controller import ControllerAddress
from rlinf_cli.flow.devices import Device, Node, devices_of, parse_devices, this_node
from rlinf_cli.flow.errors import SerializationError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.host import Host, concurrency, register_stores
from rlinf_cli.flow.private_ray import PrivateRay, join, said_to
from rlinf_cli.flow.seat import Plan, Seat
from rlinf_cli.flow.services import ControllerHost, NodeStoreHost
from rlinf_cli.flow.watch import Watch
from rlinf_cli.flow.worker import Worker, methods

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
"""What workers that are not busy may take to close."""
_OBJECT_STORE = {"cpu": 200 * 2**20, "cuda": 2 * 2**30}
"""Bytes of a private Ray's object store: channels and weights do not use it."""


class Cluster:
    """Made by `Cluster.start`. Use it as a context manager, in a thread that outlives it."""

    def __init__(self, nodes: Sequence[Node], devices: Sequence[Device], directories: tuple[Path, Path],
                 timeouts: tuple[float, float], shared: str, resources: contextlib.ExitStack) -> None:
        self.devices = tuple(devices)
        self._directory, self._run_directory = directories
        self._start_timeout, self._call_timeout = timeouts
        self._resources = resources
        self._here = ray.get_runtime_context().get_node_id()
        self._nodes = {node.id: node for node in nodes}
        self._groups: dict[str, Group] = {}
        self._address, self._stores = self._start_channels(shared)
        self._watch = Watch(self._here)
        resources.callback(self._close_workers)

    @classmethod
    def start(cls, devices: str = "auto", address: str = "", directory: Path = Path("logs"),
              start_timeout: float = 300.0, call_timeout: float = 3600.0, run_directory: Path | None = None) -> Cluster:
        """Start a private Ray, or join the one at `address`.

        `devices`: `auto`, `cpu:N` or `cuda:N` · `directory`: for the workers' logs · `start_timeout`: seconds until a
        worker must be there · `call_timeout`: seconds that a call may take when `wait` is not told otherwise ·
        `run_directory`: what workers know by this name, by default `directory`.

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
            cluster = cls(nodes, devices_of(request, nodes), directories, (start_timeout, call_timeout), shared, stack)
            cluster._resources = stack.pop_all()
            return cluster

    def launch(self, role: str, worker: type[Worker], placement: Sequence[Sequence[int]], *args: Any,
               env: Mapping[str, str] | None = None, **kwargs: Any) -> Group:
        """Start a role: one process a rank; `placement` lists each rank's devices. Returns at once, `Group.ready` waits.

        `args` and `kwargs` go to the worker's constructor. `env`: environment variables of these processes.
        Raises SerializationError when they cannot be sent.
        """
        if role in self._groups:
            raise ValueError(f"role '{role}' has been launched before")
        blob, found = _pickled(role, worker, args, kwargs), methods(worker)
        seats = [self._seat(role, rank, len(placement), devices, env or {}) for rank, devices in enumerate(placement)]
        actors = [_actor(Host, self._place(seat.node_id)).remote([seat]) for seat in seats]
        group = self._groups[role] = Group(role, seats, actors, found, self._call_timeout, self._watch)
        self._watch.add(group)
        plan = Plan(blob, self._address, self._stores)
        meeting = actors[0].reserve.options(concurrency_group="host").remote() if len(actors) > 1 else ""
        for actor in actors:
            actor.prepare.options(concurrency_group="host").remote(role, plan, meeting)
        group.building([actor.build.remote(role) for actor in actors], self._start_timeout)
        return group

    def stop(self, group: Group) -> None:
        """End a role. What is under way there is lost; its name can be launched again."""
        self._watch.remove(group)
        del self._groups[group.role]
        _close([group])
        for actor in group.actors:
            ray.kill(actor)

    def shutdown(self) -> None:
        """End all processes and remove what they kept in memory and in temporary directories. Safe to repeat."""
        self._resources.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    def _seat(self, role: str, rank: int, world: int, devices: Sequence[int], env: Mapping[str, str]) -> Seat:
        mine = [self.devices[index] for index in devices]
        first = mine[0]
        if len({device.node_id for device in mine}) > 1:
            raise ValueError(f"{role}[{rank}]: devices {list(devices)} are on several nodes: a rank is one process")
        return Seat(role, rank, world, tuple(devices), first.kind, tuple(device.local for device in mine), first.node,
                    first.node_id, first.address, self._directory, self._run_directory, env, self._call_timeout)

    def _place(self, node_id: str) -> dict[str, Any]:
        """Ray's options for an actor on a node. They ask for no resource: devices are ours."""
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0}
        if len(self._nodes) > 1:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
        return options

    def _start_channels(self, shared: str) -> tuple[ControllerAddress, dict[str, Any]]:
        """The controller beside the driver, and on every further node somebody who reads its shared memory for others."""
        home = self._nodes[self._here]
        controller = _actor(ControllerHost, self._place(home.id)).remote(
            self._directory, secrets.token_hex(32), home.address, shared, home.name)
        further = {device.node: device.node_id for device in self.devices if device.node_id != home.id}
        try:
            address: ControllerAddress = ray.get(controller.address.remote(), timeout=self._start_timeout)
            stores = {name: _actor(NodeStoreHost, self._place(node_id)).remote(self._directory, address, name)
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
        self._watch.stop()
        _close(list(self._groups.values()))


def _join(address: str, directory: Path, stack: contextlib.ExitStack) -> list[Node]:
    """Take part in a cluster; its nodes, this one first."""
    stack.enter_context(said_to(directory / "ray.log"))
    join(address)
    stack.callback(ray.shutdown)
    here = ray.get_runtime_context().get_node_id()
    alive = sorted((node for node in ray.nodes() if node["Alive"]),
                   key=lambda node: (node["NodeID"] != here, node["NodeManagerAddress"], node["NodeID"]))
    return [Node(f"node-{number}", node["NodeID"], node["NodeManagerAddress"],
                 int(node["Resources"].get("CPU", 0)), tuple(map(str, range(int(node["Resources"].get("GPU", 0))))))
            for number, node in enumerate(alive)]


def _close(groups: Sequence[Group]) -> None:
    closing = {actor.close.remote(): group.seats[rank].identity for group in groups
               for rank, actor in enumerate(group.actors) if group.is_idle(rank)}
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


def _actor(kind: type, options: Mapping[str, Any]) -> Any:
    return _actor_class(kind).options(**options)


@functools.cache
def _actor_class(kind: type, tenants: int = 1) -> Any:
    return ray.remote(concurrency_groups=concurrency(tenants))(kind) if kind is Host else ray.remote(kind)
