"""Whether an engine takes new weights, and gives memory back, as the contract says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rlinf_cli.api import Adapter, Completion, Request, adapted, weights_checksum
from rlinf_cli.plugins.testing.engine_case import EngineCase, make_requests, require_lengths, same
from rlinf_cli.plugins.testing.findings import require
from rlinf_cli.plugins.testing.reference import chosen


class WeightChecks(EngineCase):
    def takes_weights_and_gives_them_back(self) -> None:
        requests, second = make_requests(3, temperature=0.0), self._other_weights()
        before = self.run(requests)
        self.update(second)
        self._require_held(second)
        self.reference.take(second)
        try:
            for request, done in self.answers(requests):
                require(
                    set(done.versions.tolist()) == {self.version},
                    f"tokens made under version {self.version} carry {sorted(set(done.versions.tolist()))}",
                )
                self.require_logprobs(
                    done, self.distributions(request, done), "after update_weights() it must use the new weights"
                )
        finally:
            self.reference.take(self.first)
        self.update(self.first)
        self._require_held(self.first)
        after = self.run(requests)
        require(
            all(same(after[name], one) for name, one in before.items()),
            "with its first weights back it says something else than before: something of the others is left (a cache?)",
        )

    def refuses_weights_that_do_not_fit(self) -> None:
        self.update(self.first)
        name = min(self.first)
        without = {other: tensor for other, tensor in self.first.items() if other != name}
        for wrong, what, named in (
            (without, "a missing tensor", name),
            ({**self.first, "model.stranger.weight": torch.zeros(2)}, "a left-over tensor", "model.stranger.weight"),
            ({**self.first, name: torch.zeros(2, 3)}, "a tensor of another shape", name),
        ):
            self._require_refused({other: tensor * 2 for other, tensor in wrong.items()}, what, named)

    def goes_on_under_new_weights(self) -> None:
        self.update(self.first)
        before, requests = self.version, make_requests(2, new=30)
        self.engine.submit(requests)
        done = self.engine.collect(0.0)
        self.update(self._other_weights())
        for one in [*done, *self.finish()]:
            versions = one.versions.tolist()
            require(
                versions == sorted(versions) and set(versions) <= {before, self.version},
                f"versions of a response must not fall and be those of the weights that made each token; they are {versions}",
            )
            require(
                one in done or versions[-1] == self.version, "tokens made after update_weights() must carry its version"
            )
        self.update(self.first)

    def computes_again_what_was_read_when_asked(self) -> None:
        self.update(self.first)
        requests, second = make_requests(3, new=30), self._other_weights()
        self.engine.submit(requests)
        done = self.engine.collect(0.0)
        self.update(second, recompute=True)
        done += self.finish()
        self.reference.take(second)
        try:
            for one in done:
                require_lengths(one)
                request = next(request for request in requests if request.id == one.id)
                later = one.versions == self.version
                apart = np.abs(chosen(self.distributions(request, one), one.token_ids).numpy() - one.logprobs)
                require(
                    not later.any() or float(apart[later].max()) <= self.tolerance,
                    "after update_weights(recompute=True) tokens must be drawn as if the new weights had read all that came "
                    f"before; response {one.id} is {float(apart[later].max(initial=0)):.2g} nats off",
                )
        finally:
            self.reference.take(self.first)
            self.update(self.first)

    def gives_memory_back_and_takes_it_again(self) -> None:
        requests, second = make_requests(3, temperature=0.0), self._other_weights()
        before = self.run(requests)
        self._require_bytes("release_memory")
        self._require_bytes("resume_memory")
        self._require_same(before, requests, "after release_memory() and resume_memory()")
        self._require_bytes("release_memory")
        self.update(second)
        self._require_held(second)
        self.update(self.first)
        self._require_bytes("resume_memory")
        self._require_held(self.first)
        self._require_same(before, requests, "after weights that came while its memory was released")
        again = self.engine.resume_memory()
        require(again == 0, f"resume_memory() moved {again} bytes where all was there already")

    def takes_an_adapter(self) -> None:
        target = next(name for name in self.first if name.endswith("q_proj.weight"))
        outputs, inputs = self.first[target].shape
        noise = torch.Generator().manual_seed(3)
        factors = {
            f"{target}.lora_A": torch.randn(2, inputs, generator=noise),
            f"{target}.lora_B": torch.randn(outputs, 2, generator=noise),
        }
        adapter = Adapter(2, 0.5, (target,))
        self.version += 1
        self.engine.update_weights(self.version, factors.items(), adapter)
        require(
            self.engine.weights_checksum() == weights_checksum(factors.items()),
            "after an adapter weights_checksum() must be that of its factors",
        )
        merged = adapted(self.first[target], factors[f"{target}.lora_A"], factors[f"{target}.lora_B"], adapter.scale)
        self.reference.take({target: merged})
        try:
            for request, done in self.answers(make_requests(2)):
                self.require_logprobs(
                    done, self.distributions(request, done), "with an adapter W must act as W + scale * B @ A"
                )
        finally:
            self.reference.take(self.first)
            self.update(self.first)

    def _other_weights(self) -> dict[str, Tensor]:
        noise = torch.Generator().manual_seed(2)
        return {name: tensor + 0.05 * torch.randn(tensor.shape, generator=noise) for name, tensor in self.first.items()}

    def _require_held(self, weights: dict[str, Tensor]) -> None:
        require(
            self.engine.weights_checksum() == weights_checksum(self.sent(weights)),
            "weights_checksum() must be rlinf_cli.api.weights_checksum of the tensors as they were given: names, shapes, bytes",
        )

    def _require_bytes(self, method: str) -> None:
        moved = getattr(self.engine, method)()
        require(
            isinstance(moved, int) and moved >= 0, f"{method}() must return the bytes, an int of 0 or more, not {moved!r}"
        )

    def _require_same(self, before: dict[str, Completion], requests: Sequence[Request], when: str) -> None:
        after = self.run(requests)
        require(all(same(after[name], one) for name, one in before.items()), f"{when} it says something else")

    def _require_refused(self, weights: dict[str, Tensor], what: str, name: str) -> None:
        try:
            self.engine.update_weights(self.version + 7, self.sent(weights))
        except ValueError as error:
            require(name in str(error), f"the ValueError of update_weights() for {what} must name it ({name})")
        else:
            raise AssertionError(f"update_weights() must raise ValueError for {what}")
        require(self.engine.version == self.version, f"after update_weights() refused {what}, version must be what it was")
        self._require_held(self.first)
