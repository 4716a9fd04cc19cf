"""The tokens of one episode, in the order in which the policy has read or made them: appended, and never encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.rl.trajectory import BoolArray, FloatArray, IntArray, Said


@dataclass
class Transcript:
    """What follows the prompt of an episode: turns of the policy, which are trained, and what it was shown in between, which is
    not.

    `most`: tokens that prompt and all that follows may have.
    """

    prompt_ids: IntArray
    most: int
    said: list[Said] = field(default_factory=list)
    turns: int = 0
    _ids: list[IntArray] = field(default_factory=list)
    _masks: list[BoolArray] = field(default_factory=list)
    _logprobs: list[FloatArray] = field(default_factory=list)
    _versions: list[IntArray] = field(default_factory=list)
    _rewards: dict[int, float] = field(default_factory=dict)
    """Place of a token -> what was earned with it."""
    _length: int = 0

    @property
    def room(self) -> int:
        """Tokens that may still be added."""
        return self.most - len(self.prompt_ids) - self._length

    @property
    def ids(self) -> IntArray:
        """All of it: what the policy reads before its next turn."""
        return np.concatenate([self.prompt_ids, *self._ids])

    def turn(self, token_ids: IntArray, logprobs: FloatArray, versions: IntArray, text: str) -> None:
        """What the policy has made, exactly as the engine tells it."""
        if not len(token_ids) == len(logprobs) == len(versions):
            raise ValueError(f"{len(token_ids)} tokens, {len(logprobs)} log-probabilities and {len(versions)} versions do not go "
                             "together")
        self._add(token_ids, np.ones(len(token_ids), np.bool_), logprobs, versions)
        self.said.append(Said("policy", text))
        self.turns += 1

    def show(self, token_ids: IntArray, text: str, role: str = "user", name: str = "") -> None:
        """What the policy reads next. Its tokens count as made by the version that made the turn before."""
        version = int(self._versions[-1][-1]) if self._versions and len(self._versions[-1]) else 0
        count = len(token_ids)
        self._add(token_ids, np.zeros(count, np.bool_), np.zeros(count, np.float32), np.full(count, version, np.int32))
        self.said.append(Said(role, text, name))

    def earn(self, reward: float) -> None:
        """The last turn has earned it. Raises ValueError before the first turn."""
        place = next((place for place in range(len(self.said) - 1, -1, -1) if self.said[place].role == "policy"), None)
        if place is None:
            raise ValueError("a turn's reward comes after the turn")
        last = self.said[place]
        self.said[place] = Said(last.role, last.text, last.name, last.reward + reward)
        mine = np.flatnonzero(self.mask)
        if len(mine):
            self._rewards[int(mine[-1])] = self._rewards.get(int(mine[-1]), 0.0) + reward

    @property
    def response_ids(self) -> IntArray:
        return _joined(self._ids, np.int32)

    @property
    def mask(self) -> BoolArray:
        """True where the policy made the token."""
        return _joined(self._masks, np.bool_)

    @property
    def logprobs(self) -> FloatArray:
        return _joined(self._logprobs, np.float32)

    @property
    def versions(self) -> IntArray:
        return _joined(self._versions, np.int32)

    @property
    def token_rewards(self) -> FloatArray | None:
        """Where turns have earned something, float32 as long as `response_ids`; None where none has."""
        if not self._rewards:
            return None
        rewards = np.zeros(self._length, np.float32)
        rewards[list(self._rewards)] = list(self._rewards.values())
        return rewards

    def _add(self, ids: IntArray, mask: BoolArray, logprobs: FloatArray, versions: IntArray) -> None:
        if len(ids) > self.room:
            raise ValueError(f"{len(ids)} tokens do not fit: {self.room} of {self.most} are left")
        self._ids.append(ids)
        self._masks.append(mask)
        self._logprobs.append(logprobs)
        self._versions.append(versions)
        self._length += len(ids)


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts])
