"""What an agent is: a procedure, in plain code, in which a policy speaks, is shown what came of it, and speaks again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlinf_cli.contracts.tool import ToolSpec
from rlinf_cli.rl.trajectory import Finish, Prompt


@dataclass(frozen=True, slots=True)
class Turn:
    """What the policy has made. `text` has no special tokens."""

    text: str
    finish: Finish
    """`stop`: it ended by itself, or with one of the texts that stop it; `length`: it was cut off."""


class Conversation(Protocol):
    """One episode's dialogue with the policy. Tokens are only ever appended: those of the policy are trained exactly as they were
    sampled, those that it is shown are not trained."""

    @property
    def room(self) -> int:
        """Tokens that are left of `agent.max_tokens`."""
        ...

    async def generate(self, stop: Sequence[str] = (), max_new_tokens: int = 0) -> Turn:
        """The policy's next turn, of at most `max_new_tokens` tokens (0: `rollout.max_new_tokens`), and no more than there is
        room for. It ends with the token that completes one of the texts of `stop`. Raises `EpisodeOver` when no room, or no
        turn of `agent.max_turns`, is left."""
        ...

    def show(self, text: str, role: str = "user", name: str = "") -> None:
        """Append a text as it is; what does not fit into `agent.max_shown_tokens` is cut off at its end, and said so. Raises
        `EpisodeOver` when no room is left for it."""
        ...

    def send(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append chat messages (`role`, `content`, ...) through the model's chat template, and what begins the policy's next
        turn. Raises `EpisodeOver` when no room is left, UsageError where there is no chat template."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The answer of a tool, which is not shown by itself. What the policy did wrong (no such tool, arguments that do not
        fit) is an answer too; when a tool fails, the episode is given up."""
        ...

    def earn(self, reward: float) -> None:
        """The last turn has earned it, besides what the whole episode earns."""
        ...

    def branch(self, prompt: Prompt) -> Conversation:
        """A conversation of its own, of a sub-agent: its turns are trained with the episode's, and share what it earns."""
        ...


class EpisodeOver(Exception):
    """No room or turn is left. An agent may let it pass: the episode ends, as a response ends at its limit of length."""


class Agent(Protocol):
    """Target of an agent extension, built as `Agent(config, tools)` with an instance of its config dataclass and what the tools
    of the run offer. Raises UsageError where a tool that it needs is missing.

    One object serves all episodes of a process, many at once in one event loop: what belongs to an episode stays in `run`.
    """

    def __init__(self, config: Any, tools: Sequence[ToolSpec]) -> None: ...

    def prepare(self, task: Prompt) -> Prompt:
        """The task as the policy is to read it: with messages that tell of tools, or as it is."""
        ...

    async def run(self, conversation: Conversation, task: Prompt) -> None:
        """One episode, which begins with the prepared task, and has ended when this returns. What it raises, other than
        `EpisodeOver`, makes the episode fail: it is counted, named and not trained."""
        ...
