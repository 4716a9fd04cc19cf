"""Whether an algorithm keeps the contract of `rlinf_cli.api.Algorithm`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from rlinf_cli.api import Algorithm, LossInputs, Returns, ValueInputs
from rlinf_cli.plugins.testing.episodes import gives_advantages_in_environments, learns_from_environments
from rlinf_cli.plugins.testing.findings import a, require, require_metrics, run_all, target_of

GROUPS, SIZE, LONGEST = 4, 4, 64
LENGTHS = (3, 1, 5, 2, 4, 6)
"""Tokens of the samples in an optimiser step."""
SPLITS = (((0, 1, 2, 3, 4, 5),), ((0,), (1, 2), (3, 4, 5)), ((5, 3), (0,), (4, 1), (2,)))
"""Ways to split them into micro-batches."""
AGGREGATIONS = ("token-mean", "sequence-mean", "sequence-sum")


def check_algorithm(target: Any, config: Any = None) -> None:
    """Raise AssertionError unless advantages and loss are as promised: shapes, finite, 0 where nothing can be learned, the
    gradient in the right direction, and the same however an optimiser step is split between samples.

    `target`: the class, built as `target(config)`, or its extension.
    """
    algorithm_class, config = target_of(target, config)
    case = _Case(algorithm_class(config))
    on_rewards = (
        ()
        if case.algorithm.supervised
        else (
            case.chooses_samples,
            case.gives_advantages,
            case.learns_nothing_from_equal_rewards,
            case.has_no_gradient_without_advantages,
            *((case.gives_each_group_the_same_alone,) if case.algorithm.per_group else ()),
            *((case.gives_its_critic_targets, case.teaches_its_critic) if case.algorithm.needs_critic else ()),
        )
    )
    in_environments = (case.gives_advantages_in_environments,) if learns_from_environments(case.algorithm) else ()
    run_all(
        case.has_its_attributes,
        *on_rewards,
        *in_environments,
        case.gives_a_loss,
        case.raises_what_is_good,
        case.gives_the_same_however_a_step_is_split,
    )


class _Case:
    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm

    def has_its_attributes(self) -> None:
        own = self.algorithm
        require(
            isinstance(own, Algorithm),
            f"{type(own).__name__} must inherit from rlinf_cli.api.Algorithm, whose defaults "
            "stand for what later versions add",
        )
        require(
            own.aggregation in AGGREGATIONS,
            f"aggregation is {own.aggregation!r}, which is none of {', '.join(AGGREGATIONS)}",
        )
        require(isinstance(own.rounds, int) and own.rounds >= 1, f"rounds is {own.rounds!r}: it must be 1 or more")

    def chooses_samples(self) -> None:
        given = self._returns()
        chosen = self.algorithm.takes_part(given)
        require(
            isinstance(chosen, Tensor) and chosen.dtype == torch.bool and chosen.shape == given.rewards.shape,
            f"takes_part must give bool [B], here [{len(given.rewards)}]; it gave {_shown(chosen)}",
        )

    def gives_advantages(self) -> None:
        given = self._chosen(self._returns())
        before = {f.name: getattr(given, f.name) for f in fields(given)}
        kept = {name: value.clone() for name, value in before.items() if isinstance(value, Tensor)}
        found, metrics = self._advantages(given)
        count, tokens = len(given.lengths), int(given.lengths.sum())
        require(
            found.shape in {(count,), (tokens,)},
            f"advantages must be float32 [B] or [N], here [{count}] or [{tokens}]; it gave {_shown(found)}",
        )
        require(found.dtype == torch.float32, f"advantages must be float32, not {_shown(found)}")
        require(bool(found.isfinite().all()), "advantages are not finite for finite rewards")
        require(not found.requires_grad, "advantages must not have a gradient")
        require_metrics(metrics, "what advantages() gives second")
        require(all(isinstance(value, float) for value in metrics.values()), "the metrics of advantages() must be floats")
        require(
            all(torch.equal(before[name], value) for name, value in kept.items()),
            "advantages() changes what it is given: compute on copies",
        )
        require(torch.equal(found, self._advantages(given)[0]), "advantages() gives something else at every call")

    def learns_nothing_from_equal_rewards(self) -> None:
        given = self._chosen(self._returns(equal=True))
        if len(given.rewards):
            require(
                not self._advantages(given)[0].any(),
                "advantages must be exactly 0 where all rewards are equal: what is left "
                "by rounding grows to the size of a reward when it is divided",
            )

    def gives_each_group_the_same_alone(self) -> None:
        given = self._returns()
        chosen, kept = self.algorithm.takes_part(given), self._chosen(given)
        whole = _of_tokens(self._advantages(kept)[0], kept)
        for group in range(GROUPS):
            own = _only(given, given.groups == group)
            require(
                torch.equal(self.algorithm.takes_part(own), chosen[given.groups == group]),
                "per_group is set, but takes_part() gives a group something else when it comes alone",
            )
            if not self.algorithm.takes_part(own).any():
                continue
            found = self._advantages(self._chosen(own))[0]
            expected = whole[(kept.groups == group).repeat_interleave(kept.lengths)]
            require(
                torch.allclose(_of_tokens(found, self._chosen(own)), expected, atol=1e-6),
                "per_group is set, but advantages() gives a group something else when it comes alone",
            )

    def gives_its_critic_targets(self) -> None:
        given = self._chosen(self._returns())
        before = dict(self.algorithm.state)
        targets, metrics = self.algorithm.value_targets(given)
        for name in ("outputs", "targets"):
            found = getattr(targets, name)
            require(
                found.shape == given.logprobs.shape and found.dtype == torch.float32 and bool(found.isfinite().all()),
                f"value_targets() must give finite {name}, float32 [N], here [{len(given.logprobs)}]; it gave {_shown(found)}",
            )
        require_metrics(metrics, "what value_targets() gives second")
        assert given.values is not None
        require(
            torch.allclose(self.algorithm.values(targets.outputs), given.values, atol=1e-4),
            "values() must bring the outputs that value_targets() gives back to the values that it was given",
        )
        after = self.algorithm.next_state(given)
        require(
            dict(self.algorithm.state) == before,
            "value_targets() and next_state() must leave state alone: it is set once the step is trained",
        )
        require(
            all(isinstance(value, float) for value in after.values()),
            f"next_state() must give floats by name; it gave {after!r}",
        )

    def teaches_its_critic(self) -> None:
        noise = torch.Generator().manual_seed(2)
        old, targets, weights = (torch.rand(sum(LENGTHS), generator=noise) for _ in range(3))
        values = old.clone().requires_grad_()
        inputs = ValueInputs(values, old, targets, weights / weights.sum())
        loss, metrics = self.algorithm.value_loss(inputs)
        require_metrics(metrics, "what value_loss() gives second")
        (gradient,) = torch.autograd.grad(loss, values)
        require(
            bool((gradient * (old - targets) >= 0).all()) and bool(gradient.any()),
            "a step down the gradient of value_loss() must bring values nearer to their targets",
        )
        owner = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
        parts = [
            ValueInputs(*(getattr(inputs, f.name)[owner == sample] for f in fields(inputs)))
            for sample in range(len(LENGTHS))
        ]
        require(
            torch.allclose(torch.stack([self.algorithm.value_loss(part)[0] for part in parts]).sum(), loss, rtol=1e-4),
            "the value loss depends on how samples are split into micro-batches: it must be a sum over tokens, each times its "
            "share in inputs.weights",
        )

    def gives_advantages_in_environments(self) -> None:
        gives_advantages_in_environments(self.algorithm)

    def gives_a_loss(self) -> None:
        inputs = self._inputs()
        loss, metrics = self.algorithm.loss(inputs)
        require(isinstance(loss, Tensor) and loss.shape == (), f"the loss must be a scalar tensor; it is {_shown(loss)}")
        require(bool(loss.isfinite()), f"the loss is {loss.item()} for ordinary inputs")
        require(loss.requires_grad, "the loss has no gradient: it must be made of inputs.logprobs")
        require_metrics(metrics, "what loss() gives second")
        for name, value in metrics.items():
            require(
                isinstance(value, Tensor) and value.shape == (),
                f"metric {name} must be a scalar tensor; it is {_shown(value)}",
            )
            require(bool(value.isfinite()), f"metric {name} is {float(value)} for ordinary inputs")
        require(bool(_gradient(loss, inputs).isfinite().all()), "the gradient of the loss is not finite for ordinary inputs")

    def has_no_gradient_without_advantages(self) -> None:
        inputs = self._inputs(advantages=torch.zeros(sum(LENGTHS)))
        gradient = _gradient(self.algorithm.loss(inputs)[0], inputs)
        require(
            float(gradient.abs().max()) < 1e-7,
            "the loss has a gradient where all advantages are 0 and the policy is the one "
            "that was sampled: something besides the advantages is learned",
        )

    def raises_what_is_good(self) -> None:
        inputs = self._inputs()
        gradient = _gradient(self.algorithm.loss(inputs)[0], inputs)
        direction = float((gradient * inputs.advantages).sum())
        require(
            direction < 0,
            "a step down the gradient of the loss must make tokens with an advantage above 0 more likely: "
            f"here it does {'nothing' if direction == 0 else 'the opposite'} (is the sign right?)",
        )

    def gives_the_same_however_a_step_is_split(self) -> None:
        inputs = self._inputs(off_policy=0.1)
        whole, *others = (self._summed(inputs, split) for split in SPLITS)
        for other in others:
            for name, value in whole.items():
                require(
                    name in other and torch.allclose(value, other[name], rtol=1e-4, atol=1e-6),
                    f"the {name} depends on how samples are split into micro-batches: both must be sums over tokens, each "
                    "times its share in inputs.weights, of what depends on the token's own sample only",
                )

    def _summed(self, inputs: LossInputs, split: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Loss, gradient and metrics of an optimiser step that is split so."""
        total: dict[str, Tensor] = {}
        gradient = torch.zeros(len(inputs.samples))
        for part in split:
            tokens = torch.cat([(inputs.samples == sample).nonzero()[:, 0] for sample in part])
            own = _part(inputs, tokens, part)
            loss, metrics = self.algorithm.loss(own)
            gradient[tokens] = _gradient(loss, own)
            for name, value in {"loss": loss, **{f"metric {name}": value for name, value in metrics.items()}}.items():
                total[name] = total.get(name, torch.zeros(())) + value.detach()
        return {**total, "gradient": gradient}

    def _returns(self, equal: bool = False) -> Returns:
        """A step's; `equal`: with nothing to learn from it."""
        noise = torch.Generator().manual_seed(0)
        count = GROUPS * SIZE
        lengths = torch.randint(1, 8, (count,), generator=noise)
        logprobs = -3 * torch.rand(int(lengths.sum()), generator=noise)
        reference = logprobs.clone() if equal else logprobs - 0.1 * torch.rand(len(logprobs), generator=noise)
        return Returns(
            torch.full((count,), 0.3) if equal else torch.rand(count, generator=noise),
            torch.arange(count) // SIZE,
            lengths,
            torch.zeros(count, dtype=torch.bool),
            LONGEST,
            logprobs,
            reference if self.algorithm.needs_reference else None,
            self._values(logprobs, equal, noise) if self.algorithm.needs_critic else None,
        )

    def _values(self, logprobs: Tensor, equal: bool, noise: torch.Generator) -> Tensor:
        """Of the texts before the tokens; `equal`: of a critic that knows what they earn."""
        return torch.full_like(logprobs, 0.3) if equal else torch.rand(len(logprobs), generator=noise)

    def _chosen(self, given: Returns) -> Returns:
        """Of the samples that take part."""
        return _only(given, self.algorithm.takes_part(given))

    def _advantages(self, given: Returns) -> tuple[Tensor, Any]:
        found = self.algorithm.advantages(given)
        require(
            isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Tensor),
            f"advantages() must give a tensor and a mapping of metrics; it gave {a(found)}",
        )
        return found

    def _inputs(self, advantages: Tensor | None = None, off_policy: float = 0.0) -> LossInputs:
        """An optimiser step's; `off_policy`: how far (nats) the policy has moved from the one that was sampled."""
        noise = torch.Generator().manual_seed(1)
        count = sum(LENGTHS)

        def draw() -> Tensor:
            return torch.rand(count, generator=noise)

        logprobs, weights = -0.1 - 3 * draw(), 0.5 + draw()
        own = torch.ones(count) if self.algorithm.supervised else 2 * draw() - 1
        sampled = logprobs + off_policy * (draw() - 0.5)
        return LossInputs(
            logprobs.clone().requires_grad_(),
            sampled,
            own if advantages is None else advantages,
            weights / weights.sum(),
            torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS)),
            sampled + off_policy * (draw() - 0.5),
            sampled.clone() if self.algorithm.needs_reference else None,
            (1 + draw()).requires_grad_() if self.algorithm.needs_entropy else None,
        )


def _only(given: Returns, chosen: Tensor) -> Returns:
    """Of some of the samples."""
    tokens = chosen.repeat_interleave(given.lengths)
    reference, values = given.reference_logprobs, given.values
    return replace(
        given,
        rewards=given.rewards[chosen],
        groups=torch.unique(given.groups[chosen], return_inverse=True)[1],
        lengths=given.lengths[chosen],
        truncated=given.truncated[chosen],
        logprobs=given.logprobs[tokens],
        reference_logprobs=None if reference is None else reference[tokens],
        values=None if values is None else values[tokens],
    )


def _of_tokens(advantages: Tensor, given: Returns) -> Tensor:
    """[N], where they may be [B]."""
    return advantages if len(advantages) == int(given.lengths.sum()) else advantages.repeat_interleave(given.lengths)


def _part(inputs: LossInputs, tokens: Tensor, samples: Sequence[int]) -> LossInputs:
    """The micro-batch of some samples, numbered anew."""
    own = dict(_tokens_of(inputs, tokens))
    numbers = torch.arange(len(samples)).repeat_interleave(torch.tensor([LENGTHS[sample] for sample in samples]))
    return LossInputs(**{**own, "samples": numbers, "logprobs": own["logprobs"].detach().requires_grad_()})


def _tokens_of(inputs: LossInputs, tokens: Tensor) -> Iterator[tuple[str, Tensor]]:
    for f in fields(inputs):
        value = getattr(inputs, f.name)
        if value is not None:
            yield f.name, value[tokens]


def _gradient(loss: Tensor, inputs: LossInputs) -> Tensor:
    """Of the loss by the log-probabilities, float32 [N]."""
    (found,) = torch.autograd.grad(loss, [inputs.logprobs])
    return found


def _shown(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else a(value)
