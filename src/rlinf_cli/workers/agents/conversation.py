"""An episode's dialogue: tokens appended to a transcript, turns asked of the policy, tools called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rlinf_cli.contracts.agent import EpisodeOver, Turn
from rlinf_cli.contracts.engine import Completion, Request, Sampling
from rlinf_cli.rl.trajectory import IntArray, Prompt
from rlinf_cli.rl.transcript import Transcript
from rlinf_cli.workers.agents.chat import ChatTemplate
from rlinf_cli.workers.agents.toolbox import Toolbox
from rlinf_cli.workers.prompts import PromptEncoder

CUT = " [cut]"
"""At the end of what was too long to be shown whole."""


class Policy(Protocol):
    """What answers a request, wherever it is."""

    async def answer(self, request: Request, episode: str, fresh: int) -> Completion:
        """`episode`: whose request it is; `fresh`: tokens of its prompt that its last turn has not read or written."""
        ...


@dataclass(frozen=True)
class Limits:
    """See the keys of section `agent`."""

    turns: int
    tokens: int
    shown: int


@dataclass
class Surroundings:
    """What the episodes of a process share."""

    policy: Policy
    encoder: PromptEncoder
    chat: ChatTemplate
    tools: Toolbox
    limits: Limits


@dataclass
class Dialogue:
    """Contract: `rlinf_cli.contracts.agent.Conversation`. Its requests are named `ID/TURN`, so that what is drawn depends on the
    episode and the turn alone."""

    id: str
    prompt: Prompt
    text: str
    """Of the prompt, as the policy reads it."""
    transcript: Transcript
    sampling: Sampling
    around: Surroundings
    branches: list[Dialogue] = field(default_factory=list)
    last: Turn | None = None
    is_cut: bool = False
    """Whether it has ended for want of room or turns."""
    _has_ended: bool = False
    """Whether the last turn ended with a token that ends a message, not with a text."""
    _read: int = 0
    """Tokens that the policy had read or written when its last turn ended."""

    @property
    def room(self) -> int:
        return self.transcript.room

    async def generate(self, stop: Sequence[str] = (), max_new_tokens: int = 0) -> Turn:
        transcript, most = self.transcript, min(max_new_tokens or self.sampling.max_new_tokens, self.room)
        if most < 1 or transcript.turns >= self.around.limits.turns:
            self._over()
        ids = transcript.ids
        request = Request(f"{self.id}/{transcript.turns}", ids, replace(self.sampling, max_new_tokens=most, stop=tuple(stop)))
        made = await self.around.policy.answer(request, self.id, len(ids) - self._read)
        text = self.around.encoder.tokenizer.decode(made.token_ids.tolist(), skip_special_tokens=True)
        transcript.turn(made.token_ids, made.logprobs, made.versions, text)
        self._read = len(ids) + len(made.token_ids)
        self.last = Turn(text, made.finish)
        self._has_ended = len(made.token_ids) > 0 and int(made.token_ids[-1]) in self.sampling.stop_token_ids
        if made.finish == "length" and not self.room:
            self.is_cut = True
        return self.last

    def show(self, text: str, role: str = "user", name: str = "") -> None:
        text = readable(text)
        ids, most = self.around.encoder.ids(text), self.around.limits.shown
        if len(ids) > most:
            text, ids = self._shortened(ids, most)
        self._append(ids, text, role, name)

    def send(self, messages: Sequence[Mapping[str, Any]]) -> None:
        text = readable(self.around.chat.following(messages, ended=self._has_ended))
        name = str(messages[-1].get("name", "")) if messages else ""
        role = str(messages[-1].get("role", "user")) if messages else "user"
        self._append(self.around.encoder.ids(text), text, role, name)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return await self.around.tools.call(name, arguments)

    def earn(self, reward: float) -> None:
        self.transcript.earn(reward)

    def branch(self, prompt: Prompt) -> Dialogue:
        made = begin(f"{self.id}+{len(self.branches) + 1}", prompt, self.sampling, self.around)
        self.branches.append(made)
        return made

    def all(self) -> list[Dialogue]:
        """Itself, and its branches with theirs."""
        return [self, *[one for branch in self.branches for one in branch.all()]]

    def _append(self, ids: IntArray, text: str, role: str, name: str) -> None:
        if len(ids) > self.room:
            self._over()
        self.transcript.show(ids, text, role, name)

    def _shortened(self, ids: IntArray, most: int) -> tuple[str, IntArray]:
        """As many of the first tokens as there may be, and a note that there were more."""
        encoder, note = self.around.encoder, self.around.encoder.ids(CUT)
        text = encoder.tokenizer.decode(ids[: max(0, most - len(note))].tolist()) + CUT
        return text, encoder.ids(text)[:most]

    def _over(self) -> None:
        self.is_cut = True
        raise EpisodeOver


def readable(text: str) -> str:
    """Without what is no character, as half of a pair of surrogates: tokenizers refuse it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def begin(episode: str, prompt: Prompt, sampling: Sampling, around: Surroundings) -> Dialogue:
    """A dialogue that begins with a prompt. Raises UsageError as `PromptEncoder.encode`."""
    text, ids = around.encoder.encode(prompt)
    return Dialogue(episode, prompt, text, Transcript(ids, around.limits.tokens), sampling, around)
