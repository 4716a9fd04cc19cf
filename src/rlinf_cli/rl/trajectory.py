"""What flows between roles: prompts and samples, plain dataclasses of NumPy arrays until they reach a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Finish = Literal["stop", "length", "abort"]
"""Why generation ended: a stop token, the length limit, or an abort (the response is partial)."""

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class Prompt:
    """One task for the policy. `text` is taken as it is; `messages` go through the tokenizer's chat template."""

    id: str
    """Unique within the run, the same after a resume: `EPOCH-ROW`."""
    text: str | None = None
    messages: list[dict[str, str]] | None = None
    answer: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every other column of the data row; reaches the reward by name."""
    target: str | None = None
    """The response that the data has for it, which supervised training learns."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """Functions that the chat template is to tell of, as JSON schemas."""
    evaluation: bool = False
    """Answered as `eval.*` says instead of `rollout.*`; nothing is learned from it."""


@dataclass(frozen=True, slots=True)
class Said:
    """A part of an agent's episode, as text."""

    role: str
    """`policy` for what the policy made, `tool` for the answer of one, `user` for anything else that was shown to it."""
    text: str
    name: str = ""
    """Of the tool."""
    reward: float = 0.0
    """What the turn earned by itself."""


@dataclass(slots=True)
class Sample:
    """One response of the policy and all that is known of it.

    `mask`, `logprobs` and `versions` are as long as `response_ids`. Samples of one prompt share `group_id`
    (an identity, never text).
    """

    id: str
    group_id: str
    prompt_ids: IntArray
    response_ids: IntArray
    mask: BoolArray
    """True where the token was made by the policy and is trained."""
    logprobs: FloatArray
    """Log-probability of each token under the distribution it was sampled from (nats)."""
    versions: IntArray
    """Policy version that made each token."""
    finish: Finish
    prompt: str = ""
    """The prompt as the policy read it, special tokens included."""
    response: str = ""
    """The response without special tokens."""
    answer: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    reward: float = float("nan")
    """What is trained on; NaN when no reward could be given (the sample is then left out and counted)."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Each reward function's own value, by name; NaN: this one of several failed, and so there is no reward."""
    error: str = ""
    """Why the reward is missing."""
    turns: int = 1
    reference_logprobs: FloatArray | None = None
    """Log-probability of each response token under the reference model (nats), once a reference role has scored it."""
    transcript: tuple[Said, ...] = ()
    """Of an agent's episode all that was said, in order; `response` is then the policy's last turn."""
    token_rewards: FloatArray | None = None
    """What turns have earned by themselves, at their last tokens, as long as `response_ids`; `reward` has them in it."""
    leader: str = ""
    """Id of the sample of its group whose reward is its own too: a sub-agent's is that of its episode. Empty: it has its own."""
    values: FloatArray | None = None
    """What the critic expects of the reward at the text before each response token, once a critic has told."""

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    def __reduce__(self) -> tuple[Any, ...]:
        # A step moves hundreds of samples of a few short arrays each: one buffer a sample is several times cheaper to
        # pickle than five arrays.
        p, n = len(self.prompt_ids), len(self.response_ids)
        arrays = b"".join((self.prompt_ids.astype(np.int32, copy=False).tobytes(),
                           self.response_ids.astype(np.int32, copy=False).tobytes(),
                           self.logprobs.astype(np.float32, copy=False).tobytes(),
                           self.versions.astype(np.int32, copy=False).tobytes(),
                           self.mask.astype(np.bool_, copy=False).tobytes()))
        rest = (self.finish, self.prompt, self.response, self.answer, self.columns, self.reward, self.rewards,
                self.error, self.turns, self.reference_logprobs, self.transcript, self.token_rewards, self.leader, self.values)
        return _rebuild, (self.id, self.group_id, p, n, arrays, rest)


SampleGroup = list[Sample]
"""All samples of one prompt: what flows between roles, so that a group is never split on its way."""


def _rebuild(sample_id: str, group_id: str, p: int, n: int, arrays: bytes, rest: tuple[Any, ...]) -> Sample:
    # bytearray, so that the arrays can be written to, as those of a sample made here
    buffer, words = bytearray(arrays), p + 3 * n
    ints = np.frombuffer(buffer, np.int32, words)
    logprobs = np.frombuffer(buffer, np.float32, n, offset=4 * (p + n))
    mask = np.frombuffer(buffer, np.bool_, n, offset=4 * words)
    return Sample(sample_id, group_id, ints[:p], ints[p : p + n], mask, logprobs, ints[p + 2 * n :], *rest)
