"""What a tool is: something that an agent's policy can call by name, with arguments, and that answers in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ToolSpec:
    """What a policy is told of a tool."""

    name: str
    """Unique among the tools of a run: letters, digits and `_`."""
    description: str
    """What it is good for, in a sentence."""
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, of type `object`."""
    cacheable: bool = False
    """Whether the same arguments give the same answer as long as the run lasts."""


class ToolError(Exception):
    """A call cannot be answered because of what it asks for: its text is the answer that the policy reads."""


class Tool(Protocol):
    """Target of a tool extension, built as `Tool(config)` in each process that runs agents.

    The constructor is light; it raises UsageError or PluginError for what can be known to be wrong before a run. All other
    methods are called in one event loop, `call` many times at once.
    """

    def specs(self) -> Sequence[ToolSpec]:
        """The functions that it offers: before it has been opened those that are known by then, or none."""
        ...

    async def open(self) -> None:
        """Load, or connect to, what it needs, before the first call. Raises RlinfError."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The answer of one of its functions; `arguments` fit its schema. It is cancelled at `tools.timeout_s`.

        Raises ToolError for the policy's own mistakes. Anything else that it raises is a failure: the call is tried again, and
        in the end its episode is given up, counted and not trained.
        """
        ...

    async def close(self) -> None: ...
