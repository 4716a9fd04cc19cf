"""Whether an engine keeps the contract of `rlinf_cli.api.Engine`, on a model of 20 k parameters."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf_cli.api import Adapter, Completion, Engine, Request, Sampling, adapted, weights_checksum
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of
from rlinf_cli.plugins.testing.material import VOCABULARY, make_model
from rlinf_cli.plugins.testing.reference import ReferenceModel, chosen, truncated

MAX_SEQUENCE, NEW, PATIENCE_S = 48, 12, 120.0
TRUNCATIONS = ({"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 6, "top_p": 0.9, "min_p": 0.05})


def check_engine(target: Any, config: Any = None, device: str = "cpu", tolerance: float = 1e-5) -> None:
    """Raise AssertionError unless tokens, log-probabilities and versions are as promised, a response depends on nothing but
    seed, id and weights, and abort, pause and new weights work.

    `target`: the class, or its extension. `tolerance`: of log-probabilities (nats), against transformers in float32.
    """
    engine_class, config = target_of(target, config)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "model")
        engine: Engine = engine_class(config, model, device, MAX_SEQUENCE)
        case = _Case(engine, ReferenceModel(model), tolerance, getattr(config, "dtype", "float32"))
        try:
            run_all(
                case.says_what_it_is,
                case.refuses_what_does_not_fit,
                case.follows_the_model_when_greedy,
                case.draws_from_the_distribution_that_was_asked_for,
                case.truncates_as_asked,
                case.gives_the_same_in_any_company,
                case.stops_at_stop_tokens_and_at_the_limit,
                case.aborts_one_request_and_no_other,
                case.pauses_and_resumes,
                case.takes_weights_and_gives_them_back,
                case.refuses_weights_that_do_not_fit,
                case.goes_on_under_new_weights,
                *([case.takes_an_adapter] if engine.takes_adapters else []),
                case.counts,
                between=case.settle,
            )
        finally:
            engine.close()


class _Case:
    def __init__(self, engine: Engine, reference: ReferenceModel, tolerance: float, dtype: str) -> None:
        self._engine, self._reference, self._tolerance = engine, reference, tolerance
        self._first = reference.weights()
        self._dtype = getattr(torch, dtype)
        self._version = 0

    def settle(self) -> None:
        """Whatever the check before left behind, the next one finds an idle engine."""
        self._engine.resume()
        if self._engine.pending():
            self._engine.abort()
            self._finish()

    def says_what_it_is(self) -> None:
        engine = self._engine
        require(engine.version == 0, f"version is {engine.version!r} of the weights that it was built with: it must be 0")
        require(
            isinstance(engine.capacity, int) and engine.capacity >= 1,
            f"capacity is {engine.capacity!r}: it must be 1 or more",
        )
        require(
            isinstance(getattr(type(engine), "takes_adapters", None), bool), "takes_adapters must be a bool of the class"
        )
        require(engine.collect(0.0) == [], "collect() must give [] when nothing is pending")

    def refuses_what_does_not_fit(self) -> None:
        empty = Request("empty", np.zeros(0, np.int32), Sampling(2))
        long = Request("long", np.full(MAX_SEQUENCE - 3, 5, np.int32), Sampling(4))
        for request, what in ((empty, "an empty prompt"), (long, "prompt and response longer than max_sequence")):
            try:
                self._engine.submit([request])
            except ValueError:
                continue
            raise AssertionError(f"submit() must raise ValueError for {what}")
        require(self._engine.pending() == 0, "what submit() refused must not be pending")

    def follows_the_model_when_greedy(self) -> None:
        requests = _requests(5, temperature=0.0)
        for request, done in self._answers(requests):
            expected = self._distributions(request, done)
            best = expected.max(-1).values - chosen(expected, done.token_ids)
            require(
                float(best.max()) <= self._tolerance,
                "temperature 0 must give the likeliest token: another one is likelier "
                f"by {float(best.max()):.2g} nats in response {done.id}",
            )
            self._require_logprobs(done, expected, "with temperature 0 logprobs are those of temperature 1")

    def draws_from_the_distribution_that_was_asked_for(self) -> None:
        for temperature in (1.0, 1.5):
            for request, done in self._answers(_requests(5, temperature=temperature)):
                self._require_logprobs(
                    done,
                    self._distributions(request, done, temperature),
                    f"logprobs with temperature {temperature} must be log_softmax(logits / temperature)",
                )

    def truncates_as_asked(self) -> None:
        for knobs in TRUNCATIONS:
            for request, done in self._answers(_requests(5, **knobs)):
                expected = truncated(self._distributions(request, done), request.sampling)
                what = ", ".join(f"{name}={value}" for name, value in knobs.items())
                self._require_logprobs(
                    done,
                    expected,
                    f"with {what} tokens and logprobs must be of what is left (top-k, then "
                    "top-p, then min-p), which adds up to 1 again",
                )

    def gives_the_same_in_any_company(self) -> None:
        requests = _requests(6, new=(3, 12, 5, 1, 9, 12))
        together = self._run(requests)
        backwards = self._run(requests[::-1])
        alone = {request.id: self._run([request])[request.id] for request in requests}
        for other, how in ((backwards, "in another order"), (alone, "alone")):
            for name, done in together.items():
                require(
                    _same(done, other[name]),
                    f"response {name} is another one when it is generated {how}: its noise must be a "
                    "function of (seed, id, position) and nothing else",
                )
        again = self._run([replace(request, sampling=replace(request.sampling, seed=1)) for request in requests])
        require(
            any(not _same(done, again[name]) for name, done in together.items()), "another seed gives the same responses"
        )
        renamed = self._run([replace(request, id=f"other-{request.id}") for request in requests])
        require(
            any(not _same(done, renamed[f"other-{name}"]) for name, done in together.items()),
            "requests with other ids, same prompts and seed get the same responses: the samples of a group would all be alike",
        )

    def stops_at_stop_tokens_and_at_the_limit(self) -> None:
        (request,) = _requests(1)
        free = self._run([request])[request.id]
        require(
            free.finish == "length" and len(free.token_ids) == NEW,
            f"without stop tokens a response must have max_new_tokens="
            f"{NEW} tokens and finish 'length'; it has {len(free.token_ids)} and '{free.finish}'",
        )
        place = next((i for i in range(1, NEW) if free.token_ids[i] not in free.token_ids[:i]), 0)
        stop = int(free.token_ids[place])
        done = self._run([replace(request, sampling=replace(request.sampling, stop_token_ids=(stop, VOCABULARY - 1)))])[
            request.id
        ]
        require(
            done.finish == "stop" and done.token_ids.tolist() == free.token_ids[: place + 1].tolist(),
            "a response must end with its first stop token, that token included, and finish 'stop'",
        )

    def aborts_one_request_and_no_other(self) -> None:
        requests = _requests(4, new=30)
        whole = self._run(requests)
        self._engine.submit(requests)
        first = self._engine.collect(0.0)
        self._engine.abort([requests[1].id])
        done = {one.id: one for one in [*first, *self._finish()]}
        require(set(done) == set(whole), "after abort() every request must still be collected, the aborted one too")
        ended = done[requests[1].id]
        require(
            ended.finish == "abort" or _same(ended, whole[ended.id]),
            f"an aborted request must finish 'abort', not '{ended.finish}'",
        )
        require(
            ended.token_ids.tolist() == whole[ended.id].token_ids[: len(ended.token_ids)].tolist(),
            "an aborted response must be the beginning of the whole one",
        )
        _require_lengths(ended)
        require(
            all(_same(done[request.id], whole[request.id]) for request in requests if request.id != ended.id),
            "abort() of one request changes the others",
        )
        self._engine.submit(requests)
        self._engine.abort()
        require({one.id for one in self._finish()} == set(whole), "abort() without ids must end all requests")

    def pauses_and_resumes(self) -> None:
        requests = _requests(3)
        whole = self._run(requests)
        self._engine.pause()
        self._engine.submit(requests)
        require(self._engine.collect(0.05) == [], "a paused engine must not finish anything: collect(timeout) gives []")
        require(self._engine.pending() == len(requests), "pending() must count what waits in a paused engine")
        self._engine.resume()
        done = {one.id: one for one in self._finish()}
        require(all(_same(done[name], one) for name, one in whole.items()), "a pause changes what is generated")

    def takes_weights_and_gives_them_back(self) -> None:
        requests, second = _requests(3, temperature=0.0), self._other_weights()
        before = self._run(requests)
        self._update(second)
        self._require_held(second)
        self._reference.take(second)
        try:
            for request, done in self._answers(requests):
                require(
                    set(done.versions.tolist()) == {self._version},
                    f"tokens made under version {self._version} carry {sorted(set(done.versions.tolist()))}",
                )
                self._require_logprobs(
                    done, self._distributions(request, done), "after update_weights() it must use the new weights"
                )
        finally:
            self._reference.take(self._first)
        self._update(self._first)
        self._require_held(self._first)
        after = self._run(requests)
        require(
            all(_same(after[name], one) for name, one in before.items()),
            "with its first weights back it says something else than before: something of the others is left (a cache?)",
        )

    def refuses_weights_that_do_not_fit(self) -> None:
        self._update(self._first)
        name = min(self._first)
        without = {other: tensor for other, tensor in self._first.items() if other != name}
        for wrong, what, named in (
            (without, "a missing tensor", name),
            ({**self._first, "model.stranger.weight": torch.zeros(2)}, "a left-over tensor", "model.stranger.weight"),
            ({**self._first, name: torch.zeros(2, 3)}, "a tensor of another shape", name),
        ):
            self._require_refused({other: tensor * 2 for other, tensor in wrong.items()}, what, named)

    def goes_on_under_new_weights(self) -> None:
        self._update(self._first)
        before, requests = self._version, _requests(2, new=30)
        self._engine.submit(requests)
        done = self._engine.collect(0.0)
        self._update(self._other_weights())
        for one in [*done, *self._finish()]:
            versions = one.versions.tolist()
            require(
                versions == sorted(versions) and set(versions) <= {before, self._version},
                f"versions of a response must not fall and be those of the weights that made each token; they are {versions}",
            )
            require(
                one in done or versions[-1] == self._version, "tokens made after update_weights() must carry its version"
            )
        self._update(self._first)

    def takes_an_adapter(self) -> None:
        target = next(name for name in self._first if name.endswith("q_proj.weight"))
        outputs, inputs = self._first[target].shape
        noise = torch.Generator().manual_seed(3)
        factors = {
            f"{target}.lora_A": torch.randn(2, inputs, generator=noise),
            f"{target}.lora_B": torch.randn(outputs, 2, generator=noise),
        }
        adapter = Adapter(2, 0.5, (target,))
        self._version += 1
        self._engine.update_weights(self._version, factors.items(), adapter)
        require(
            self._engine.weights_checksum() == weights_checksum(factors.items()),
            "after an adapter weights_checksum() must be that of its factors",
        )
        merged = adapted(self._first[target], factors[f"{target}.lora_A"], factors[f"{target}.lora_B"], adapter.scale)
        self._reference.take({target: merged})
        try:
            for request, done in self._answers(_requests(2)):
                self._require_logprobs(
                    done, self._distributions(request, done), "with an adapter W must act as W + scale * B @ A"
                )
        finally:
            self._reference.take(self._first)
            self._update(self._first)

    def counts(self) -> None:
        self._run(_requests(2))
        stats = self._engine.stats()
        missing = [name for name in ("tokens", "steps", "prefill_tokens", "slots_used") if name not in stats]
        require(not missing, f"stats() lacks {', '.join(missing)}")
        require(stats["tokens"] >= 2 * NEW, f"stats() counts {stats['tokens']} tokens after more have been made")
        require(0 <= stats["slots_used"] <= 1, f"slots_used is {stats['slots_used']}: it must be a share of the slots")

    def _run(self, requests: Sequence[Request]) -> dict[str, Completion]:
        self._engine.submit(requests)
        done = {one.id: one for one in self._finish()}
        require(set(done) == {request.id for request in requests}, "every request must be collected once, under its own id")
        for one in done.values():
            _require_lengths(one)
        return done

    def _answers(self, requests: Sequence[Request]) -> list[tuple[Request, Completion]]:
        done = self._run(requests)
        return [(request, done[request.id]) for request in requests]

    def _finish(self) -> list[Completion]:
        done: list[Completion] = []
        deadline = time.monotonic() + PATIENCE_S
        while self._engine.pending():
            require(time.monotonic() < deadline, f"requests are still pending after {PATIENCE_S:.0f} s of collect()")
            done += self._engine.collect(1.0)
        return done

    @torch.no_grad()
    def _distributions(self, request: Request, done: Completion, temperature: float = 1.0) -> Tensor:
        return self._reference.distributions(request.prompt_ids, done.token_ids, temperature)

    def _require_logprobs(self, done: Completion, expected: Tensor, sentence: str) -> None:
        apart = float((chosen(expected, done.token_ids) - torch.from_numpy(done.logprobs)).abs().max())
        require(apart <= self._tolerance, f"{sentence}; response {done.id} is {apart:.2g} nats off")

    def _other_weights(self) -> dict[str, Tensor]:
        noise = torch.Generator().manual_seed(2)
        return {name: tensor + 0.05 * torch.randn(tensor.shape, generator=noise) for name, tensor in self._first.items()}

    def _update(self, weights: dict[str, Tensor]) -> None:
        self._version += 1
        self._engine.update_weights(self._version, self._sent(weights))
        require(
            self._engine.version == self._version,
            f"after update_weights({self._version}, ...) version is {self._engine.version}",
        )

    def _sent(self, weights: dict[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
        return [(name, tensor.to(self._dtype)) for name, tensor in weights.items()]

    def _require_held(self, weights: dict[str, Tensor]) -> None:
        require(
            self._engine.weights_checksum() == weights_checksum(self._sent(weights)),
            "weights_checksum() must be rlinf_cli.api.weights_checksum of the tensors as they were given: names, shapes, bytes",
        )

    def _require_refused(self, weights: dict[str, Tensor], what: str, name: str) -> None:
        try:
            self._engine.update_weights(self._version + 7, self._sent(weights))
        except ValueError as error:
            require(name in str(error), f"the ValueError of update_weights() for {what} must name it ({name})")
        else:
            raise AssertionError(f"update_weights() must raise ValueError for {what}")
        require(self._engine.version == self._version, f"after update_weights() refused {what}, version must be what it was")
        self._require_held(self._first)


def _requests(count: int, new: int | Sequence[int] = NEW, **sampling: Any) -> list[Request]:
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


def _same(one: Completion, other: Completion) -> bool:
    return one.token_ids.tolist() == other.token_ids.tolist() and one.finish == other.finish


def _require_lengths(done: Completion) -> None:
    for name in ("token_ids", "logprobs", "versions"):
        array = getattr(done, name)
        require(isinstance(array, np.ndarray), f"{name} of a completion must be a NumPy array, not {a(array)}")
        require(
            len(array) == len(done.token_ids),
            f"{name} must have one entry a token: {len(array)} for {len(done.token_ids)} tokens",
        )
