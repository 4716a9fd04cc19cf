"""An engine that is checked, beside what transformers says: asking it, and comparing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf_cli.api import Completion, Engine, Request, Sampling
from rlinf_cli.plugins.testing.findings import a, require
from rlinf_cli.plugins.testing.material import VOCABULARY
from rlinf_cli.plugins.testing.reference import ReferenceModel, chosen

NEW, PATIENCE_S = 12, 120.0


class EngineCase:
    def __init__(self, engine: Engine, reference: ReferenceModel, tolerance: float, dtype: str) -> None:
        self.engine, self.reference, self.tolerance = engine, reference, tolerance
        self.first = reference.weights()
        self.dtype = getattr(torch, dtype)
        self.version = 0

    def settle(self) -> None:
        """Whatever the check before left behind, the next one finds an idle engine."""
        self.engine.resume()
        if self.engine.pending():
            self.engine.abort()
            self.finish()

    def run(self, requests: Sequence[Request]) -> dict[str, Completion]:
        self.engine.submit(requests)
        done = {one.id: one for one in self.finish()}
        require(set(done) == {request.id for request in requests}, "every request must be collected once, under its own id")
        for one in done.values():
            require_lengths(one)
        return done

    def answers(self, requests: Sequence[Request]) -> list[tuple[Request, Completion]]:
        done = self.run(requests)
        return [(request, done[request.id]) for request in requests]

    def finish(self) -> list[Completion]:
        done: list[Completion] = []
        deadline = time.monotonic() + PATIENCE_S
        while self.engine.pending():
            require(time.monotonic() < deadline, f"requests are still pending after {PATIENCE_S:.0f} s of collect()")
            done += self.engine.collect(1.0)
        return done

    @torch.no_grad()
    def distributions(self, request: Request, done: Completion, temperature: float = 1.0) -> Tensor:
        return self.reference.distributions(request.prompt_ids, done.token_ids, temperature)

    def require_logprobs(self, done: Completion, expected: Tensor, sentence: str) -> None:
        apart = float((chosen(expected, done.token_ids) - torch.from_numpy(done.logprobs)).abs().max())
        require(apart <= self.tolerance, f"{sentence}; response {done.id} is {apart:.2g} nats off")

    def update(self, weights: dict[str, Tensor], recompute: bool = False) -> None:
        self.version += 1
        self.engine.update_weights(self.version, self.sent(weights), None, recompute)
        require(
            self.engine.version == self.version,
            f"after update_weights({self.version}, ...) version is {self.engine.version}",
        )

    def sent(self, weights: dict[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
        return [(name, tensor.to(self.dtype)) for name, tensor in weights.items()]


def make_requests(count: int, new: int | Sequence[int] = NEW, **sampling: Any) -> list[Request]:
    """Of unequal prompts; `new`: the longest response, or that of each."""
    noise = np.random.default_rng(count)
    news = [new] * count if isinstance(new, int) else new
    return [
        Request(
            f"0-{number}/0000",
            noise.integers(3, VOCABULARY, noise.integers(1, 9)).astype(np.int32),
            Sampling(news[number], **sampling),
        )
        for number in range(count)
    ]


def same(one: Completion, other: Completion) -> bool:
    return one.token_ids.tolist() == other.token_ids.tolist() and one.finish == other.finish


def require_lengths(done: Completion) -> None:
    for name in ("token_ids", "logprobs", "versions"):
        array = getattr(done, name)
        require(isinstance(array, np.ndarray), f"{name} of a completion must be a NumPy array, not {a(array)}")
        require(
            len(array) == len(done.token_ids),
            f"{name} must have one entry a token: {len(array)} for {len(done.token_ids)} tokens",
        )
