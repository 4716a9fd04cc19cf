"""Everything that can be checked before anything expensive starts, in well under two seconds and without Ray or torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlinf_cli.config.load import check
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.datasets import open_dataset
from rlinf_cli.data.rows import Dataset
from rlinf_cli.data.stream import PromptStream
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.devices import DeviceRequest, parse_devices
from rlinf_cli.flow.placement import Placement, RoleSpec, load_placement, temporal
from rlinf_cli.models.check import check_model
from rlinf_cli.plugins.loader import Plugins
from rlinf_cli.plugins.references import check_function
from rlinf_cli.workflows.base import Role, Workflow


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


def prepare(config: RunConfig, plugins: Plugins) -> Prepared:
    """Check configuration, model, data, reward, devices and placement; raises RlinfError at the first that is wrong."""
    check(config)
    check_model(config.model.name, plugins)
    dataset = open_dataset(config.data.name, config.seed, config.data.prompt_key, config.data.answer_key,
                           config.extension("data"), config.settings("data"), plugins.names("dataset"))
    _check_reward(config, dataset)
    stream = PromptStream(dataset, config.rollout.prompts, config.seed, config.data.shuffle)
    workflow: Workflow = plugins.get("workflow", config.workflow).load()()
    roles = {role.name: role for role in workflow.roles(config)}
    devices = None if config.cluster.address else parse_devices(config.cluster.devices)
    placement = None if devices is None else place(config, list(roles.values()), devices.count, devices.kind)
    return Prepared(config, workflow, roles, stream, devices, placement)


def _check_reward(config: RunConfig, dataset: Dataset) -> None:
    """Whether the reward is there, and the data has what it reads."""
    first = dataset.row(0)
    if config.extension("reward") is None:
        check_function(config.reward.name, first.columns)
    elif getattr(config.settings("reward"), "needs_answer", False) and first.answer is None:
        raise UsageError(f"reward.name={config.reward.name} compares with an answer, but {config.data.name} has none: "
                         "name its column with data.answer_key, or choose another reward")


def place(config: RunConfig, roles: Sequence[Role], devices: int, kind: str) -> Placement:
    """The placement that the configuration asks for on so many devices."""
    specs = [RoleSpec(role.name, role.ranks) for role in roles]
    if config.placement == "temporal":
        return temporal(specs, devices, kind)
    return load_placement(Path(config.placement), specs, devices, kind)
