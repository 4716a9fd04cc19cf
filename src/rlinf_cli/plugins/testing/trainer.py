"""Whether a trainer keeps the contract of `rlinf_cli.api.Trainer`, on one rank and a model of 20 k parameters."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf_cli.api import LossInputs, Ranks, Sample, Trainer, TrainItem, check_directory, weights_checksum
from rlinf_cli.plugins.testing.findings import require, run_all, target_of
from rlinf_cli.plugins.testing.material import make_model, make_samples
from rlinf_cli.plugins.testing.reference import ReferenceModel

STEPS, TEMPERATURE = 10, 0.8
SCALE = 37
"""What the weights of a step are divided by when it is complete, in the case of items that come in pieces."""
METRICS = ("actor/loss", "actor/entropy", "actor/grad_norm", "actor/lr", "actor/logp_diff_mean", "actor/logp_diff_max")
PICKLES = {".pt", ".pth", ".bin", ".pkl", ".ckpt"}


def check_trainer(
    target: Any, config: Any = None, splits: Sequence[Any] = (), device: str = "cpu", tolerance: float = 1e-5
) -> None:
    """Raise AssertionError unless log-probabilities, losses and gradients are those of transformers in float32, the result of
    a step does not depend on how it is computed, and a saved trainer goes on exactly.

    `target`: the class, or its extension. `splits`: configurations that differ from `config` only in how a step is split into
    micro-batches. `tolerance`: of log-probabilities (nats).
    """
    trainer_class, config = target_of(target, config)
    with tempfile.TemporaryDirectory() as folder:
        case = _Case(trainer_class, config, splits, device, tolerance, Path(folder))
        run_all(
            case.scores_as_transformers_does,
            case.tells_what_the_loss_needs,
            case.reports_what_it_measured,
            case.lowers_the_loss,
            case.steps_alike_in_any_order_and_split,
            case.steps_alike_when_items_come_in_pieces,
            case.forgets_what_was_given_up,
            case.leaves_the_weights_alone_when_numbers_are_not_finite,
            case.names_its_weights_as_the_model_does,
            case.goes_on_exactly_from_what_it_saved,
            case.refuses_what_another_model_saved,
            case.can_be_a_reference,
            case.survives_being_offloaded,
        )


class _Case:
    def __init__(
        self, trainer_class: Any, config: Any, splits: Sequence[Any], device: str, tolerance: float, folder: Path
    ) -> None:
        self._class, self._config, self._splits, self._device = trainer_class, config, splits, device
        self._tolerance, self._folder = tolerance, folder
        self._model = make_model(folder / "model")
        self._reference = ReferenceModel(self._model)
        self._samples = _on_policy(make_samples(), self._reference)
        self._items = _items(self._samples)

    def scores_as_transformers_does(self) -> None:
        trainer = self._built()
        require(trainer.log_probs([], TEMPERATURE) == [], "log_probs([]) must be []")
        for temperature in (1.0, TEMPERATURE):
            expected = self._reference.log_probs(self._samples, temperature)
            together = trainer.log_probs(self._samples, temperature)
            alone = [trainer.log_probs([sample], temperature)[0] for sample in self._samples]
            for found, how in ((together, ""), (alone, " one by one")):
                apart = max(_apart(ours, theirs) for ours, theirs in zip(expected, found, strict=True))
                require(
                    apart <= self._tolerance,
                    f"log_probs(){how} with temperature {temperature} differs from transformers by {apart:.2g} nats",
                )

    def tells_what_the_loss_needs(self) -> None:
        seen: list[LossInputs] = []

        def loss(inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
            seen.append(inputs)
            return _loss(inputs)

        self._step(self._built(), loss, needs_entropy=True)
        tokens = sum(int(item.sample.mask.sum()) for item in self._items)
        require(
            sum(len(inputs.logprobs) for inputs in seen) == tokens,
            f"the loss must see each trained token once: {tokens} in all, "
            f"it saw {sum(len(inputs.logprobs) for inputs in seen)}",
        )
        for inputs in seen:
            lengths = {
                name: len(getattr(inputs, name))
                for name in ("logprobs", "old_logprobs", "advantages", "weights", "samples", "sampled_logprobs")
            }
            require(
                len(set(lengths.values())) == 1, f"LossInputs must have one value a token in each field; it has {lengths}"
            )
            require(
                inputs.entropy is not None and inputs.entropy.requires_grad,
                "with needs_entropy LossInputs.entropy must be there and have a gradient",
            )
            numbers = sorted(set(inputs.samples.tolist()))
            require(
                numbers == list(range(len(numbers))),
                f"LossInputs.samples must number the micro-batch's samples from 0; it has {numbers}",
            )
        for name, mine in (("advantages", "advantages"), ("weights", "weights")):
            given = np.concatenate([getattr(item, mine)[item.sample.mask] for item in self._items])
            found = np.concatenate([getattr(inputs, name).cpu().numpy() for inputs in seen])
            require(
                np.allclose(np.sort(given), np.sort(found), atol=1e-7),
                f"LossInputs.{name} must be what the items have at trained tokens",
            )

    def reports_what_it_measured(self) -> None:
        trainer = self._built()
        before = dict(_copies(trainer))
        metrics = self._step(trainer)
        missing = [name for name in (*METRICS, "actor/share") if name not in metrics]
        require(not missing, f"train_step() must return {', '.join(missing)}")
        wrong = [name for name, value in metrics.items() if not isinstance(value, float) or not math.isfinite(value)]
        require(not wrong, f"metric {wrong[0] if wrong else ''} of train_step() must be a finite float")
        changed = {name for name, tensor in trainer.named_weights() if not torch.equal(tensor.cpu(), before[name])}
        require(bool(changed) or metrics["actor/lr"] == 0, "train_step() changed no weight")
        loss, entropy, norm = self._expected(changed)
        expected = {
            "actor/loss": loss,
            "actor/share": 1.0,
            "actor/entropy": entropy,
            "actor/logp_diff_max": 0.0,
            "actor/logp_diff_mean": 0.0,
        }
        if trainer.adapter() is None:
            expected["actor/grad_norm"] = norm
        for name, value in expected.items():
            require(
                abs(metrics[name] - value) <= 10 * self._tolerance * max(1.0, abs(value)),
                f"{name} of an on-policy step is {metrics[name]:.6g}, transformers gives {value:.6g}: they are sums over all "
                "micro-batches, the norm is that of the whole gradient before clipping",
            )

    def lowers_the_loss(self) -> None:
        trainer = self._built()
        before = self._likelihood(trainer)
        for _ in range(STEPS // 2):
            trainer.train_step(self._items, _likelihood_loss, TEMPERATURE)
        require(
            self._likelihood(trainer) > before, f"{STEPS // 2} steps of train_step() must lower the loss that they minimise"
        )

    def steps_alike_in_any_order_and_split(self) -> None:
        base = self._after_two_steps(self._config, self._items)
        others = [
            (self._after_two_steps(self._config, self._items[::-1]), "the order of the items"),
            *((self._after_two_steps(config, self._items), f"how it is split ({config})") for config in self._splits),
        ]
        for other, what in others:
            apart = max(float((base[name] - tensor).abs().max()) for name, tensor in other.items())
            require(apart <= 1e-5, f"the weights after two steps depend on {what}: they differ by {apart:.2g}")

    def steps_alike_when_items_come_in_pieces(self) -> None:
        """With weights that are not divided yet, as where a step is trained while it is being generated."""
        whole, pieces = self._built(), self._built()
        larger = [replace(item, weights=item.weights * np.float32(SCALE)) for item in self._items]
        for _ in range(2):
            expected = self._step(whole)
            for piece in (larger[:1], [], larger[1:4], larger[4:]):
                pieces.accumulate(piece, _loss, TEMPERATURE)
            found = pieces.finish(1 / SCALE)
            for name, value in expected.items():
                require(
                    abs(found.get(name, math.nan) - value) <= 10 * self._tolerance * max(1.0, abs(value)),
                    f"{name} is {found.get(name)} when items come in several calls of accumulate() and finish(scale), "
                    f"{value:.6g} with train_step(): loss and gradient are multiplied by `scale`, the other metrics are means",
                )
        weights, others = dict(_copies(whole)), dict(_copies(pieces))
        apart = max(float((others[name] - tensor).abs().max()) for name, tensor in weights.items())
        require(
            apart <= 1e-5, f"several calls of accumulate() and finish(scale) give weights that differ by {apart:.2g} from "
            "those of train_step()",
        )

    def forgets_what_was_given_up(self) -> None:
        def failing(inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
            raise ArithmeticError("not today")

        trainer, fresh = self._built(), self._built()
        before = _checksum(trainer)
        trainer.accumulate(self._items[:3], _loss, TEMPERATURE)
        trainer.discard()
        trainer.accumulate(self._items[:2], _loss, TEMPERATURE)
        try:
            trainer.accumulate(self._items, failing, TEMPERATURE)
        except ArithmeticError:
            require(_checksum(trainer) == before, "accumulate() and discard() must leave the weights alone")
        else:
            raise AssertionError("accumulate() must raise what the loss raises")
        require(
            self._step(trainer) == self._step(fresh) and _checksum(trainer) == _checksum(fresh),
            "something of what discard(), or a loss that raised, should have made forgotten is left in the next step",
        )

    def leaves_the_weights_alone_when_numbers_are_not_finite(self) -> None:
        trainer = self._built()
        before = _checksum(trainer)

        def broken(inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
            return inputs.logprobs.sum() * math.nan, {}

        try:
            self._step(trainer, broken)
        except FloatingPointError:
            require(_checksum(trainer) == before, "after a loss that is not finite the weights must be what they were")
        else:
            raise AssertionError("train_step() must raise FloatingPointError when the loss is not finite")
        fresh = self._built()
        self._step(trainer)
        self._step(fresh)
        require(_checksum(trainer) == _checksum(fresh), "something of a step that was refused is left in the next one")

    def names_its_weights_as_the_model_does(self) -> None:
        expected, found = self._reference.weights(), dict(self._built().named_weights())
        require(
            found.keys() == expected.keys(),
            "named_weights() must have transformers' names, of tied weights the first; these differ: "
            f"{', '.join(sorted(found.keys() ^ expected.keys())[:4])}",
        )
        for name, tensor in expected.items():
            require(not found[name].requires_grad, f"named_weights() must give detached tensors; {name} has a gradient")
            require(
                found[name].shape == tensor.shape and bool(torch.allclose(found[name].cpu().float(), tensor, atol=1e-6)),
                f"{name} of named_weights() is not what the model directory has",
            )

    def goes_on_exactly_from_what_it_saved(self) -> None:
        trainer, directory = self._built(), self._empty("saved")
        self._step(trainer)
        trainer.save(directory)
        self._require_saved(directory)
        at_save = _checksum(trainer)
        metrics = self._step(trainer)
        resumed = self._built()
        resumed.load(directory)
        require(_checksum(resumed) == at_save, "load() does not bring back the weights that save() wrote, bit for bit")
        again = self._step(resumed)
        require(
            _checksum(resumed) == _checksum(trainer) and again == metrics,
            "a step after load() differs from the same step without it: is all of the optimiser's and schedule's state saved?",
        )

    def refuses_what_another_model_saved(self) -> None:
        make_model(self._folder / "wider", hidden_size=64, head_dim=16)
        other = self._built(model=self._folder / "wider")
        self._step(other)
        other.save(self._empty("other"))
        trainer = self._built()
        before = _checksum(trainer)
        try:
            trainer.load(self._folder / "other")
        except ValueError:
            require(_checksum(trainer) == before, "load() changed weights before it refused a checkpoint")
        else:
            raise AssertionError("load() must raise ValueError for the checkpoint of a model of another shape")

    def can_be_a_reference(self) -> None:
        trainer = self._built(steps=0)
        require(trainer.adapter() is None, "built with total_steps=0 it is a reference, which has no adapter")
        expected = self._reference.log_probs(self._samples, TEMPERATURE)
        apart = max(map(_apart, expected, trainer.log_probs(self._samples, TEMPERATURE)))
        require(
            apart <= self._tolerance, f"built with total_steps=0, log_probs() is {apart:.2g} nats off the model as it is"
        )

    def survives_being_offloaded(self) -> None:
        trainer, other = self._built(), self._built()
        self._step(trainer)
        self._step(other)
        for piece in (self._items[:3], self._items[3:]):
            for one in (trainer, other):
                one.accumulate(piece, _loss, TEMPERATURE)
            freed = trainer.offload()
            require(isinstance(freed, int) and freed >= 0, f"offload() must give the bytes that it freed; it gave {freed!r}")
            require(trainer.offload() == 0, "offload() must free nothing when all is away")
            require(_checksum(trainer) == _checksum(other), "named_weights() must work after offload()")
            trainer.save(self._empty(f"away{len(piece)}"))
            moved = trainer.onload()
            require(isinstance(moved, int) and moved >= 0, f"onload() must give the bytes that it moved; it gave {moved!r}")
            require(trainer.onload() == 0, "onload() must move nothing when all is there")
        require(
            trainer.finish(1.0) == other.finish(1.0) and _checksum(trainer) == _checksum(other),
            "offload() and onload() change what is trained after them",
        )
        self._step(trainer)
        self._step(other)
        require(_checksum(trainer) == _checksum(other), "offload() and onload() change what is trained after them")

    def _built(self, steps: int = STEPS, config: Any = None, model: Path | None = None) -> Trainer:
        torch.manual_seed(0)  # as the actor does: what a trainer draws must be alike in every process
        trainer: Trainer = self._class(
            self._config if config is None else config, model or self._model, self._device, Ranks(), steps
        )
        return trainer

    def _step(self, trainer: Trainer, loss: Any = None, needs_entropy: bool = False) -> dict[str, float]:
        return trainer.train_step(self._items, loss or _loss, TEMPERATURE, needs_entropy)

    def _after_two_steps(self, config: Any, items: Sequence[TrainItem]) -> dict[str, Tensor]:
        trainer = self._built(config=config)
        for _ in range(2):
            trainer.train_step(items, _loss, TEMPERATURE)
        return dict(_copies(trainer))

    def _likelihood(self, trainer: Trainer) -> float:
        return float(sum(found.astype(np.float64).sum() for found in trainer.log_probs(self._samples, TEMPERATURE)))

    def _expected(self, trained: set[str]) -> tuple[float, float, float]:
        """Loss, mean entropy, and norm of the gradient of those weights, of an on-policy step."""
        model = self._reference.model
        model.zero_grad()
        loss, entropy, tokens = torch.zeros(()), 0.0, 0
        for item in self._items:
            mask = torch.from_numpy(item.sample.mask)
            rows = self._reference.distributions(item.sample.prompt_ids, item.sample.response_ids, TEMPERATURE)[mask]
            logprobs = rows.gather(1, torch.as_tensor(item.sample.response_ids).long()[mask][:, None])[:, 0]
            loss = loss - (torch.from_numpy(item.weights * item.advantages)[mask] * logprobs).sum()
            entropy -= float((rows.exp() * rows).detach().sum())
            tokens += len(rows)
        loss.backward()  # type: ignore[no-untyped-call]
        square = sum(float(p.grad.double().square().sum()) for name, p in model.named_parameters() if name in trained)
        return float(loss.detach()), entropy / tokens, math.sqrt(square)

    def _empty(self, name: str) -> Path:
        directory = self._folder / name
        directory.mkdir()
        return directory

    def _require_saved(self, directory: Path) -> None:
        require(
            (directory / "model").is_dir() or (directory / "adapter").is_dir(),
            "save() must write model/ (a Hugging Face directory), or adapter/ where an adapter is trained",
        )
        pickles = [path.name for path in directory.rglob("*") if path.suffix in PICKLES]
        require(
            not pickles,
            f"save() wrote {', '.join(pickles)}: what can run code when it is loaded is refused; use safetensors and JSON",
        )
        if (directory / "model").is_dir():
            check_directory(directory / "model")


def _on_policy(samples: Sequence[Sample], reference: ReferenceModel) -> list[Sample]:
    """The samples as if the model had made them; the first token of every third is not trained."""
    made = []
    for number, (sample, logprobs) in enumerate(zip(samples, reference.log_probs(samples, TEMPERATURE), strict=True)):
        mask = sample.mask.copy()
        mask[0] = number % 3 != 0
        made.append(replace(sample, mask=mask, logprobs=logprobs.detach().numpy()))
    return made


def _items(samples: Sequence[Sample]) -> list[TrainItem]:
    """With advantages of both signs, and weights of a mean over tokens."""
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    return [
        TrainItem(sample, np.float32(math.sin(1 + 2 * number)) * sample.mask, sample.mask / np.float32(tokens))
        for number, sample in enumerate(samples)
    ]


def _loss(inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
    return -(inputs.weights * inputs.advantages * inputs.logprobs).sum(), {"actor/share": inputs.weights.sum()}


def _likelihood_loss(inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
    return -(inputs.weights * inputs.logprobs).sum(), {}


def _apart(expected: Tensor, found: Any) -> float:
    require(
        len(found) == len(expected),
        f"log_probs() must give one value a response token: {len(found)} for {len(expected)} tokens",
    )
    return float(np.abs(expected.detach().numpy() - found).max())


def _copies(trainer: Trainer) -> list[tuple[str, Tensor]]:
    return [(name, tensor.detach().cpu().clone()) for name, tensor in trainer.named_weights()]


def _checksum(trainer: Trainer) -> str:
    return weights_checksum(trainer.named_weights())
