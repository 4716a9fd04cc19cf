"""Where the profile comes from that a plan is made with, and whether it is of what is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.flow.devices import parse_devices
from rlinf_cli.runs.conditions import hardware, settings, versions
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.analytic import analytic_profile, assumed_lengths
from rlinf_cli.scheduling.plan_file import PlanFile
from rlinf_cli.scheduling.profile import Profile
from rlinf_cli.scheduling.roofline import Use, Work
from rlinf_cli.scheduling.shapes import SHAPES
from rlinf_cli.workflows.base import Role

ANALYTIC = "analytic:"
"""How a profile begins that is computed for a machine: `analytic:h100`."""
LENGTHS = ("rollout.group_size", "rollout.max_prompt_tokens", "rollout.max_new_tokens")
"""Settings that a plan may ask for otherwise than they were measured: it says what it makes of them."""
UNKNOWN = "unknown"
"""Key of the difference that there is to a profile that says nothing of itself."""


@dataclass(frozen=True)
class Known:
    """A profile, what to call it, and what is otherwise here than it was where it was measured, a few words each."""

    profile: Profile
    name: str
    differences: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """A sentence; empty where nothing is different."""
        return (f"{self.name} was measured under other conditions: {', '.join(self.differences)}; what it predicts is as far off "
                "as these matter") if self.differences else ""


def read_profile(config: RunConfig, roles: Sequence[Role], source: str | None, devices: int, model: str) -> Known:
    """The profile to plan with. `source`: a file, `analytic:h100`, or None for the newest stored one that fits this machine and
    configuration. Raises UsageError, with what to do, where there is none, or it is of another workflow, model, or program."""
    if source is None:
        return _stored(config)
    if source.startswith(ANALYTIC):
        return Known(_analytic(config, roles, source.removeprefix(ANALYTIC), devices, model), source)
    profile = profile_file.load(Path(source))
    if profile.workflow != config.workflow:
        raise UsageError(f"profile {source} is of workflow '{profile.workflow}', and this run has workflow '{config.workflow}': "
                         "measure it with: rlinf profile")
    if stale := _stale(profile, config, devices):
        raise UsageError(f"profile {source} is stale: {stale}. Measure again with: rlinf profile, with the same configuration")
    return Known(profile, source, tuple(differences_of(profile, config, devices).values()))


def profile_of_plan(file: PlanFile, config: RunConfig, roles: Sequence[Role], devices: int) -> tuple[Profile | None, str]:
    """The profile that a plan was made with, if it holds for this run, and what its reader should know. Raises UsageError where
    it is damaged."""
    name = file.profile
    path = next((path for path in (Path(name), file.path.parent / name) if path.is_file()), None) if name else None
    try:
        if name.startswith(ANALYTIC):
            return read_profile(config, roles, name, devices, config.model.name).profile, ""
    except UsageError as error:
        return None, f"{file.path} was made with {name}, which says nothing of this run ({error}): its memory is not checked"
    if path is None:
        return None, f"{file.path} was made with {name}, which is not there: its memory is not checked" if name else ""
    profile = profile_file.load(path)
    if stale := _stale(profile, config, devices):
        return None, f"{file.path} was made with {name}, and this has changed since: {stale}; its memory is not checked"
    return profile, Known(profile, name, tuple(differences_of(profile, config, devices).values())).note


def differences_of(profile: Profile, config: RunConfig, devices: int) -> dict[str, str]:
    """What is otherwise than when it was measured: key -> in a few words."""
    found = profile_file.differences(profile, hardware(kind_of(config), devices), versions(), settings(config))
    if profile.settings:
        return found
    return {key: words for key, words in found.items() if key == profile_file.HARDWARE} | {
        UNKNOWN: "which settings and versions it was measured with is not known"}


def fitting(config: RunConfig, kind: str, devices: int) -> tuple[Path | None, list[str]]:
    """The newest stored profile that fits; where none does: None, and what has changed since the nearest was measured."""
    return profile_file.find(profile_file.directory(), config.workflow, hardware(kind, devices), versions(), settings(config))


def kind_of(config: RunConfig) -> str:
    """`cpu` or `cuda`, whether such devices are there or not."""
    kind, colon, _ = config.cluster.devices.partition(":")
    return kind if colon else parse_devices(kind).kind


def devices_of(config: RunConfig) -> int:
    """As many as `cluster.devices` says, whether they are there or not."""
    kind, colon, count = config.cluster.devices.partition(":")
    return int(count) if colon else parse_devices(kind).count


def _stale(profile: Profile, config: RunConfig, devices: int) -> str:
    """The differences that make the profile useless, in words; empty where there are none."""
    return ", ".join(words for key, words in differences_of(profile, config, devices).items()
                     if _is_decisive(key, profile, config))


def _is_decisive(key: str, profile: Profile, config: RunConfig) -> bool:
    """Versions are part of what another machine is."""
    if key in (*LENGTHS, profile_file.HARDWARE, UNKNOWN):
        return False
    return key not in versions() or _machine(profile.hardware) == _machine(hardware(kind_of(config), 1))


def _machine(hardware: str) -> str:
    """Without the number of devices."""
    return hardware.partition(" ")[2]


def _stored(config: RunConfig) -> Known:
    request = parse_devices(config.cluster.devices)
    path, changed = fitting(config, request.kind, request.count)
    if path is not None:
        return Known(profile_file.load(path), str(path))
    why = f"; since the nearest one was measured, this has changed: {', '.join(changed)}" if changed else ""
    raise UsageError(f"no profile in {profile_file.directory()} fits{why}. Measure one with: rlinf profile, with the same "
                     "configuration; or plan without measuring, with --profile analytic:h100")


def _analytic(config: RunConfig, roles: Sequence[Role], hardware: str, devices: int, model: str) -> Profile:
    rollout = config.rollout
    lengths = assumed_lengths(rollout.prompts * rollout.group_size, rollout.max_new_tokens, config.seed)
    uses = {role.name: _use(role) for role in roles}
    profile = analytic_profile(hardware, shape_of(model), uses, devices,
                               Work(lengths, rollout.group_size, rollout.max_prompt_tokens))
    return replace(profile, workflow=config.workflow)


def _use(role: Role) -> Use | None:
    """What a role does with the model."""
    return "train" if role.stateful else "generate" if role.name == "rollout" else "infer" if role.scores else None


def shape_of(model: str) -> str:
    """`Qwen/Qwen2.5-7B-Instruct` -> `qwen2.5-7b`."""
    name = model.rpartition("/")[2].lower()
    found = max((shape for shape in SHAPES if name.startswith(shape)), key=len, default=None)
    if found is None:
        raise UsageError(f"there is no analytic profile of model.name={model}{did_you_mean(name, SHAPES)}: choose one of "
                         f"{', '.join(SHAPES)} with --model")
    return found
