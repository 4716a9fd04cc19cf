"""Whether an engine keeps the contract of `rlinf_cli.api.Engine`, on a model of 20 k parameters."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_cli.api import Completion, Engine, Request, Sampling
from rlinf_cli.plugins.testing.engine_case import NEW, PATIENCE_S, make_requests, require_lengths, same
from rlinf_cli.plugins.testing.engine_weights import WeightChecks
from rlinf_cli.plugins.testing.findings import require, run_all, target_of
from rlinf_cli.plugins.testing.material import VOCABULARY, make_model
from rlinf_cli.plugins.testing.reference import ReferenceModel, chosen, truncated

MAX_SEQUENCE = 48
TRUNCATIONS = ({"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 6, "top_p": 0.9, "min_p": 0.05})


def check_engine(target: Any, config: Any = None, device: str = "cpu", tolerance: float = 1e-5) -> None:
    """Raise AssertionError unless tokens, log-probabilities and versions are as promised, a response depends on nothing but
    seed, id and weights, and abort, pause, new weights and giving memory back work.

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
                case.computes_again_what_was_read_when_asked,
                case.gives_memory_back_and_takes_it_again,
                case.is_driven_by_one_thread_after_another,
                *([case.takes_an_adapter] if engine.takes_adapters else []),
                case.counts,
                between=case.settle,
            )
        finally:
            engine.close()


class _Case(WeightChecks):
    def says_what_it_is(self) -> None:
        engine = self.engine
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
                self.engine.submit([request])
            except ValueError:
                continue
            raise AssertionError(f"submit() must raise ValueError for {what}")
        require(self.engine.pending() == 0, "what submit() refused must not be pending")

    def follows_the_model_when_greedy(self) -> None:
        requests = make_requests(5, temperature=0.0)
        for request, done in self.answers(requests):
            expected = self.distributions(request, done)
            best = expected.max(-1).values - chosen(expected, done.token_ids)
            require(
                float(best.max()) <= self.tolerance,
                "temperature 0 must give the likeliest token: another one is likelier "
                f"by {float(best.max()):.2g} nats in response {done.id}",
            )
            self.require_logprobs(done, expected, "with temperature 0 logprobs are those of temperature 1")

    def draws_from_the_distribution_that_was_asked_for(self) -> None:
        for temperature in (1.0, 1.5):
            for request, done in self.answers(make_requests(5, temperature=temperature)):
                self.require_logprobs(
                    done,
                    self.distributions(request, done, temperature),
                    f"logprobs with temperature {temperature} must be log_softmax(logits / temperature)",
                )

    def truncates_as_asked(self) -> None:
        for knobs in TRUNCATIONS:
            for request, done in self.answers(make_requests(5, **knobs)):
                expected = truncated(self.distributions(request, done), request.sampling)
                what = ", ".join(f"{name}={value}" for name, value in knobs.items())
                self.require_logprobs(
                    done,
                    expected,
                    f"with {what} tokens and logprobs must be of what is left (top-k, then "
                    "top-p, then min-p), which adds up to 1 again",
                )

    def gives_the_same_in_any_company(self) -> None:
        requests = make_requests(6, new=(3, 12, 5, 1, 9, 12))
        together = self.run(requests)
        backwards = self.run(requests[::-1])
        alone = {request.id: self.run([request])[request.id] for request in requests}
        for other, how in ((backwards, "in another order"), (alone, "alone")):
            for name, done in together.items():
                require(
                    same(done, other[name]),
                    f"response {name} is another one when it is generated {how}: its noise must be a "
                    "function of (seed, id, position) and nothing else",
                )
        again = self.run([replace(request, sampling=replace(request.sampling, seed=1)) for request in requests])
        require(
            any(not same(done, again[name]) for name, done in together.items()), "another seed gives the same responses"
        )
        renamed = self.run([replace(request, id=f"other-{request.id}") for request in requests])
        require(
            any(not same(done, renamed[f"other-{name}"]) for name, done in together.items()),
            "requests with other ids, same prompts and seed get the same responses: the samples of a group would all be alike",
        )

    def stops_at_stop_tokens_and_at_the_limit(self) -> None:
        (request,) = make_requests(1)
        free = self.run([request])[request.id]
        require(
            free.finish == "length" and len(free.token_ids) == NEW,
            f"without stop tokens a response must have max_new_tokens="
            f"{NEW} tokens and finish 'length'; it has {len(free.token_ids)} and '{free.finish}'",
        )
        place = next((i for i in range(1, NEW) if free.token_ids[i] not in free.token_ids[:i]), 0)
        stop = int(free.token_ids[place])
        done = self.run([replace(request, sampling=replace(request.sampling, stop_token_ids=(stop, VOCABULARY - 1)))])[
            request.id
        ]
        require(
            done.finish == "stop" and done.token_ids.tolist() == free.token_ids[: place + 1].tolist(),
            "a response must end with its first stop token, that token included, and finish 'stop'",
        )

    def aborts_one_request_and_no_other(self) -> None:
        requests = make_requests(4, new=30)
        whole = self.run(requests)
        self.engine.submit(requests)
        first = self.engine.collect(0.0)
        self.engine.abort([requests[1].id])
        done = {one.id: one for one in [*first, *self.finish()]}
        require(set(done) == set(whole), "after abort() every request must still be collected, the aborted one too")
        ended = done[requests[1].id]
        require(
            ended.finish == "abort" or same(ended, whole[ended.id]),
            f"an aborted request must finish 'abort', not '{ended.finish}'",
        )
        require(
            ended.token_ids.tolist() == whole[ended.id].token_ids[: len(ended.token_ids)].tolist(),
            "an aborted response must be the beginning of the whole one",
        )
        require_lengths(ended)
        require(
            all(same(done[request.id], whole[request.id]) for request in requests if request.id != ended.id),
            "abort() of one request changes the others",
        )
        self.engine.submit(requests)
        self.engine.abort()
        require({one.id for one in self.finish()} == set(whole), "abort() without ids must end all requests")

    def pauses_and_resumes(self) -> None:
        requests = make_requests(3)
        whole = self.run(requests)
        self.engine.pause()
        self.engine.submit(requests)
        require(self.engine.collect(0.05) == [], "a paused engine must not finish anything: collect(timeout) gives []")
        require(self.engine.pending() == len(requests), "pending() must count what waits in a paused engine")
        self.engine.resume()
        done = {one.id: one for one in self.finish()}
        require(all(same(done[name], one) for name, one in whole.items()), "a pause changes what is generated")

    def is_driven_by_one_thread_after_another(self) -> None:
        requests = make_requests(3)
        whole = self.run(requests)
        done: list[Completion] = []
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            one.submit(self.engine.submit, requests[:2]).result(PATIENCE_S)
            done += other.submit(self.engine.collect, 0.0).result(PATIENCE_S)
            other.submit(self.engine.submit, requests[2:]).result(PATIENCE_S)
            done += one.submit(self.finish).result(PATIENCE_S)
        require(
            {one.id for one in done} == set(whole) and all(same(one, whole[one.id]) for one in done),
            "requests that one thread submits must be collected, and be the same, by another one",
        )

    def counts(self) -> None:
        self.run(make_requests(2))
        stats = self.engine.stats()
        missing = [name for name in ("tokens", "steps", "prefill_tokens", "slots_used") if name not in stats]
        require(not missing, f"stats() lacks {', '.join(missing)}")
        require(stats["tokens"] >= 2 * NEW, f"stats() counts {stats['tokens']} tokens after more have been made")
        require(0 <= stats["slots_used"] <= 1, f"slots_used is {stats['slots_used']}: it must be a share of the slots")
