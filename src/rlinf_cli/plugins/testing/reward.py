"""Whether a reward keeps the contract of `rlinf_cli.api.Reward`."""

from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from rlinf_cli.api import Sample
from rlinf_cli.plugins.extension import describe
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of
from rlinf_cli.plugins.testing.material import make_samples

VALUE_NAME = re.compile(r"[A-Za-z0-9_.@:-]+")
ODD = ("", " \n\t", "9" * 5000, "\x00\u202e\U0001f600é", "<answer>" * 300, "((((" * 300)
"""Responses that a policy may come up with."""


def check_reward(target: Any, config: Any = None, samples: Sequence[Sample] = ()) -> None:
    """Raise AssertionError unless it gives finite numbers, the same for the same sample, and what it raises is an exception.

    `target`: the class, built as `target(config)`, or `target(config, "cpu")` where it scores on devices; or its extension.
    `samples`: some that it can score (by default answers to sums); give your own when it reads columns.
    """
    reward_class, config = target_of(target, config)
    if getattr(config, "on_device", False):
        run_all(*_BatchCase(reward_class(config, "cpu"), list(samples) or make_samples()).checks())
        return
    case = _Case(reward_class, config, list(samples) or make_samples())
    run_all(
        case.can_be_sent_to_its_process,
        case.leaves_samples_as_they_are,
        case.gives_finite_numbers,
        case.gives_the_same_again,
        case.survives_odd_responses,
    )


class _BatchCase:
    """Of a `BatchReward`."""

    def __init__(self, reward: Any, samples: list[Sample]) -> None:
        self._reward, self._samples = reward, samples

    def checks(self) -> tuple[Callable[[], None], ...]:
        return self.gives_a_number_a_sample, self.gives_the_same_however_it_is_asked, self.comes_back

    def gives_a_number_a_sample(self) -> None:
        found = self._scores(self._samples)
        require(
            len(found) == len(self._samples) and all(isinstance(one, Real) for one in found),
            f"score_batch() must give a number for each of {len(self._samples)} samples; it gave {found!r:.80}",
        )
        require(any(map(math.isfinite, found)), "score_batch() gave no finite number for any sample")
        require(self._scores([]) == [], "score_batch([]) must give nothing")

    def gives_the_same_however_it_is_asked(self) -> None:
        together = self._scores(self._samples[::-1])[::-1]
        for sample, one in zip(self._samples, together, strict=True):
            (alone,) = self._scores([sample])
            require(
                math.isclose(one, alone, rel_tol=1e-4, abs_tol=1e-4) or (math.isnan(one) and math.isnan(alone)),
                f"score_batch() gives {one} for a sample among others and {alone} alone: a reward must depend on the sample only",
            )

    def comes_back(self) -> None:
        before = self._scores(self._samples)
        self._reward.offload()
        self._reward.onload()
        require(self._scores(self._samples) == before, "offload() and onload() must leave the scores as they are")

    def _scores(self, samples: list[Sample]) -> list[Any]:
        return list(self._reward.score_batch(samples))


class _Case:
    def __init__(self, reward_class: Any, config: Any, samples: list[Sample]) -> None:
        self._class, self._config, self._samples = reward_class, config, samples
        self._reward = reward_class(config)

    def can_be_sent_to_its_process(self) -> None:
        require(isinstance(getattr(self._class, "isolated", True), bool), "isolated must be a bool of the class")
        require(
            pickle.loads(pickle.dumps(self._config)) == self._config,
            "the configuration is another one after pickling: it travels to the processes that compute rewards",
        )

    def gives_finite_numbers(self) -> None:
        problems = []
        for sample in self._samples:
            try:
                given = self._reward.score(sample)
            except Exception as error:  # its right, but not for every sample
                problems.append(describe(error))
                continue
            _require_reward(given)
        require(
            len(problems) < len(self._samples),
            f"it raised on all {len(self._samples)} samples, first {(problems or [''])[0]} "
            "(give check_reward samples that it can score)",
        )

    def gives_the_same_again(self) -> None:
        other = self._class(self._config)
        for sample in self._samples[::-1]:
            require(
                _outcome(self._reward, sample) == _outcome(other, sample),
                f"it gives {_outcome(self._reward, sample)} and then "
                f"{_outcome(other, sample)} for one sample: a reward must depend on the sample only",
            )

    def leaves_samples_as_they_are(self) -> None:
        for sample in self._samples:
            before = copy.deepcopy(sample)
            _outcome(self._reward, sample)
            require(repr(sample) == repr(before), f"score() changes its sample ({sample.id})")

    def survives_odd_responses(self) -> None:
        """An exception is fine: the sample is left out and counted. Numbers that are no numbers, or an exit, are not."""
        for response in ODD:
            for answer in (self._samples[0].answer, None):
                odd = replace(
                    self._samples[0],
                    response=response,
                    answer=answer,
                    response_ids=np.full(len(response[:64]), 5, np.int32),
                )
                try:
                    given = self._reward.score(odd)
                except Exception:
                    continue
                except BaseException as error:
                    raise AssertionError(
                        f"score() ended the process with {describe(error)} for response {response[:20]!r}"
                    ) from error
                _require_reward(given)


def _require_reward(given: Any) -> None:
    values = given if isinstance(given, Mapping) else {"reward": given}
    require("reward" in values, f"score() gave {sorted(map(str, values))} without 'reward', which is what is trained on")
    for name, value in values.items():
        require(
            isinstance(name, str) and VALUE_NAME.fullmatch(name) is not None,
            f"score() names a value {name!r}: names are made of letters, digits and _ . : @ -",
        )
        require(isinstance(value, Real) or hasattr(value, "__float__"), f"score() must give numbers; {name} is {a(value)}")
        require(
            math.isfinite(float(value)), f"score() gave {name}={float(value)}: raise an exception where there is no reward"
        )


def _outcome(reward: Any, sample: Sample) -> str:
    """What it gives, or raises, as a text that can be compared."""
    try:
        given = reward.score(sample)
    except Exception as error:
        return describe(error)
    return str({name: float(value) for name, value in given.items()} if isinstance(given, Mapping) else float(given))

