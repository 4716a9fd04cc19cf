"""What a generation engine is: token ids in; token ids, log-probabilities and policy versions out as they finish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.rl.trajectory import Finish, FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 are off."""

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts: a response ends with the token that completes one of them, which is kept whole."""


@dataclass(frozen=True, slots=True)
class Request:
    """One response to make. The noise of its token at position t is a function of (`sampling.seed`, `id`, t) only."""

    id: str
    prompt_ids: IntArray
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished (or aborted) response. The three arrays have one entry a response token, the stop token included."""

    id: str
    token_ids: IntArray
    logprobs: FloatArray
    """Of the distribution the token was drawn from: temperature and truncation applied (greedy: temperature 1)."""
    versions: IntArray
    finish: Finish


class Engine(Protocol):
    """Target of an engine extension, built as `Engine(config, model, device, max_sequence)`.

    `config`: an instance of its config dataclass · `model`: a Hugging Face directory · `device`: `cpu` or `cuda:0` ·
    `max_sequence`: most tokens of prompt and response together.

    One thread at a time submits and collects. `abort`, `pause`, `resume`, `update_weights`, `weights_checksum`, `stats` may
    come from another thread at any time and take effect between two decode steps.
    """

    version: int
    """Policy version of the weights that it holds."""
    capacity: int
    """Requests that it can work on at the same time."""
    takes_adapters: bool
    """A class attribute: whether `update_weights` can be given an adapter's factors alone."""

    def __init__(self, config: Any, model: Path, device: str, max_sequence: int) -> None: ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests. Raises ValueError when a prompt is empty or prompt and response could exceed `max_sequence`."""
        ...

    def collect(self, timeout: float | None = None) -> list[Completion]:
        """Work until at least one request has ended and return the ended ones; [] when nothing is pending, or nothing
        ended within `timeout` seconds (a paused engine only waits)."""
        ...

    def pending(self) -> int:
        """Requests submitted and not yet collected."""
        ...

    def abort(self, ids: Iterable[str] | None = None) -> None:
        """End the named requests (all when None): they are collected with finish `abort` and what they have so far."""
        ...

    def pause(self) -> None:
        """Hold generation after the current decode step; running requests keep their state."""
        ...

    def resume(self) -> None: ...

    def update_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None = None,
                       recompute: bool = False) -> None:
        """Replace the weights between two decode steps. Names are Hugging Face's, tied weights come once. With an
        `adapter`, `tensors` are its factors, and the weights become those that the engine was built with plus it.

        Raises ValueError naming missing, left-over or wrongly shaped tensors; the old weights then still hold.
        Running requests go on under the new weights; their later tokens carry `version`. With `recompute`, the keys and
        values of what they have read and written are computed again under the new weights; else they keep the old ones.
        """
        ...

    def release_memory(self) -> int:
        """Give the device's memory back while nothing is pending, as the engine's own keys say: keys and values, and
        weights if need be; the bytes that are free on the device now. `update_weights` works in between."""
        ...

    def resume_memory(self) -> int:
        """Take back what `release_memory` gave away; the bytes that were moved. Does nothing when all is there."""
        ...

    def weights_checksum(self) -> str:
        """`rlinf_cli.models.checksum.weights_checksum` of what the last `update_weights` set, as the engine really holds
        it, read back from its own layout."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Counters since the start: `tokens`, `steps`, `prefill_tokens`, `slots_used` (mean share of slots in use)."""
        ...

    def close(self) -> None: ...


class TakesWeights(Protocol):
    """An `Engine`, or whatever else is given new weights as one is."""

    def update_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None = None,
                       recompute: bool = False) -> None: ...

    def weights_checksum(self) -> str: ...


@runtime_checkable
class HoldingEngine(Protocol):
    """What an engine may offer besides: to compute on new weights where they are, instead of on a copy."""

    def hold_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], recompute: bool = False) -> None:
        """As `Engine.update_weights`, for whole weights in host memory that stay as they are until the next update has
        returned. They are shared with others: nothing may be written there."""
        ...
