"""The policy that a user points at: a checkpoint of a run, or a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.models.check import check_model
from rlinf_cli.models.names import Hub, interpret
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.runs.checkpoints import Checkpoint, open_checkpoint
from rlinf_cli.runs.naming import locate
from rlinf_cli.runs.policy import policy_directory


@dataclass(frozen=True)
class Policy:
    """What was pointed at, and found."""

    name: str
    """As it was written."""
    run: Path | None = None
    checkpoint: Checkpoint | None = None
    """None: it is a model."""

    @property
    def label(self) -> str:
        return self.name if self.checkpoint is None else f"{self.run}, step {self.checkpoint.step}"

    @property
    def files(self) -> list[Path]:
        """Configuration files that belong to it."""
        return [] if self.run is None else [self.run / "config.yaml"]

    def directory(self, config: RunConfig, plugins: Plugins) -> Path:
        """The Hugging Face directory; built or fetched where it is not there yet. `config`: of the run, or with the model's
        name."""
        if self.checkpoint is None:
            return resolve_model(config.model.name, config.seed, plugins)
        return policy_directory(self.checkpoint, config)

    def told(self, config: RunConfig, plugins: Plugins) -> RunConfig:
        """The configuration with this policy as its model."""
        if self.checkpoint is None:
            return config
        return replace(config, model=replace(config.model, name=str(self.directory(config, plugins).resolve())))


def find_policy(name: str, plugins: Plugins, runs: Path = Path("runs")) -> Policy:
    """A run, one of its checkpoints (see `rlinf_cli.runs.naming.locate`), or a model; a name that a plugin has for a model
    is one, whatever runs there are.

    Raises UsageError for what is neither, for a damaged checkpoint, and for a run that has none yet.
    """
    if name in plugins.names("policy") and not Path(name).exists():
        return Policy(name)
    if name.partition(":")[0] in plugins.names("model") and not Path(name).exists():
        return _model(name, plugins)
    try:
        found = locate(name, runs)
    except UsageError as no_run:
        return _model_instead(name, plugins, no_run)
    return Policy(name, found.run, open_checkpoint(found))


def _model_instead(name: str, plugins: Plugins, no_run: UsageError) -> Policy:
    if "@" in name:
        raise no_run
    try:
        found = interpret(name, plugins)
    except UsageError as no_model:
        raise UsageError(f"{no_run}; and {no_model}") from None
    if isinstance(found, Hub) and Path(name).parent.is_dir():
        raise no_run
    return _model(name, plugins)


def _model(name: str, plugins: Plugins) -> Policy:
    check_model(name, plugins)
    return Policy(name)
