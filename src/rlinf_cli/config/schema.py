"""The core's configuration keys. A docstring under a field is its help text; `key` declares its default and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rlinf_cli.config.kinds import DEFAULT, KINDS, Section
from rlinf_cli.config.rules import key
from rlinf_cli.config.sections import (
    AgentConfig,
    AlgorithmConfig,
    CheckpointConfig,
    ClusterConfig,
    CriticConfig,
    DataConfig,
    EngineConfig,
    EnvConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    ToolsConfig,
    TrainerConfig,
)
from rlinf_cli.plugins.extension import Extension


@dataclass(frozen=True)
class Part:
    """One of what a section names: of `reward.name=math + 0.2*format` there are two, of `algorithm.name=grpo` one."""

    name: str
    """As it is written, without the weight: `math`, `my.py:score`, `a.jsonl`, `openai/gsm8k`."""
    weight: float = 1.0
    extension: Extension | None = None
    """None when the name is a path, a hub name or `module:function`."""
    settings: Any = None
    """Instance of the extension's configuration dataclass; None when it has none."""
    key: str = ""
    """Where its keys stand: `reward`, `reward.math`, `log.wandb`."""


@dataclass(frozen=True)
class RunConfig:
    """The resolved configuration of a run: frozen, picklable, sections as attributes (`config.rollout.prompts`).

    The keys that a chosen extension adds to a section are in `settings(section)`, or in `parts(section)` where a section
    may name several.
    """

    name: str = key("", pattern=r"(\w[\w.+-]*)?", form="letters, digits and . _ + - only")
    """Name of the run and its directory; empty: made from algorithm, data, model and time."""
    seed: int = key(0, ge=0)
    """Decides every random choice of the run."""
    deterministic: bool = False
    """Train samples in their order rather than as they come: with the same seed every placement then gives the same
    numbers to the last bit, and training waits for a whole step."""
    steps: int = key(100, ge=1)
    """Steps to train: each generates, scores and trains one batch."""
    workflow: str = "reasoning"
    """A named workflow: which roles there are and what flows between them."""
    placement: str = key("auto", pattern=r".+", form="auto, temporal, spatial, ROLES:DEVICES,... or a YAML file")
    """Which roles run on which devices. `auto`: what is fastest by a profile that fits; without one `temporal`, until the first
    steps are measured; with `deterministic`, in an environment, or with an agent, always `temporal`; `temporal`: they take turns
    on all of them; `spatial`: what trains or scores with a model has the second half, the rest the first; or as in
    `rollout+reward:0-2,actor:3`; or a file that says so."""
    runs_dir: str = "runs"
    """Directory of the run directories."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)
    chosen: Mapping[str, tuple[Part, ...]] = field(default_factory=dict, repr=False)
    """Section, or `eval` -> what its name stands for; see `parts`."""
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Key -> where its value came from."""

    def parts(self, section: Section | Literal["eval"]) -> tuple[Part, ...]:
        """What a section names, in the order in which it is written; of `eval`, what `eval.data` names (none: empty)."""
        return self.chosen.get(section, ())

    def extension(self, section: Section) -> Extension | None:
        """The extension chosen for a section; None when the name is a path, a hub name or `module:function`, and when
        the section names several parts."""
        part = self._only(section)
        return None if part is None else part.extension

    def settings(self, section: Section) -> Any:
        """Instance of the chosen extension's configuration dataclass; None when there is none, or there are several."""
        part = self._only(section)
        return None if part is None else part.settings

    def _only(self, section: Section) -> Part | None:
        parts = self.parts(section)
        return parts[0] if [part.key for part in parts] == [section] else None

    @property
    def longest_response(self) -> int:
        """Tokens that may follow a prompt: of an agent's episode all that it may have."""
        return self.agent.max_tokens if self.agent.name else self.rollout.max_new_tokens

    @property
    def longest_sequence(self) -> int:
        """Tokens of a prompt and all that follows it, at most."""
        if self.agent.name:
            return self.agent.max_tokens
        return self.rollout.max_prompt_tokens + max(self.rollout.max_new_tokens, self.eval.max_new_tokens)

    def origin(self, name: str) -> str:
        """Where the value of a key came from, in words."""
        return self.origins.get(name, DEFAULT)

    def items(self) -> Iterator[tuple[str, str, Any]]:
        """(place, name, value) of every key: top-level keys first (place ''), then section by section the core's
        (place `reward`) and the extensions' (`reward`, or `reward.math` where there are several)."""
        for name in TOP_LEVEL:
            yield "", name, getattr(self, name)
        for section in SECTIONS:
            yield from _values(section, getattr(self, section))
            for part in self.chosen.get(section, ()) if section in KINDS else ():
                yield from _values(part.key, part.settings)

    def to_dict(self) -> dict[str, Any]:
        """Every key with its value, a mapping a section."""
        document: dict[str, Any] = {}
        for place, name, value in self.items():
            mapping = document
            for step in place.split(".", 1) if place else ():
                mapping = mapping.setdefault(step, {})
            mapping[name] = list(value) if isinstance(value, tuple) else value
        return document

    def to_yaml(self, origins: bool = False) -> str:
        """The text of a CONFIG file that resolves to this configuration; on request with the origin of each value."""
        from rlinf_cli.config.write import to_yaml

        return to_yaml(self, origins)


def _values(place: str, settings: Any) -> Iterator[tuple[str, str, Any]]:
    for f in fields(settings) if settings is not None else ():
        yield place, f.name, getattr(settings, f.name)


SECTIONS: Mapping[str, type] = {
    "cluster": ClusterConfig, "model": ModelConfig, "env": EnvConfig, "agent": AgentConfig, "tools": ToolsConfig,
    "data": DataConfig, "reward": RewardConfig, "algorithm": AlgorithmConfig, "rollout": RolloutConfig, "engine": EngineConfig,
    "trainer": TrainerConfig, "critic": CriticConfig, "checkpoint": CheckpointConfig, "eval": EvalConfig, "log": LogConfig,
}
"""Sections in the order in which they are shown."""

_NOT_KEYS = {*SECTIONS, "chosen", "origins"}
TOP_LEVEL = tuple(f.name for f in fields(RunConfig) if f.name not in _NOT_KEYS)
"""Keys that stand in no section."""

