"""Training a step whose samples are gathered first: rank 0 gathers them and deals them out, all ranks train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.flow.ports import In
from rlinf_cli.flow.worker import Worker
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.workers.batch import Dealt, Item, Parts
from rlinf_cli.workers.gathering import StepSamples

CHUNK = 256
"""Groups taken from the channel at once, where so many wait."""

Dealer = Callable[[Sequence[Sample], Algorithm, RunConfig, int, int], Dealt[Item]]
"""`batch.deal` or `batch.deal_values`."""


class Learns(Protocol[Item]):
    """A `Learner` or a `ValueLearner`."""

    version: int

    def train(self, part: Parts[Item]) -> dict[str, float]: ...


class Handout:
    """What rank 0 of `worker`'s role sends the others in a step, to each its own. `what`: there is, in a word."""

    def __init__(self, worker: Worker, what: str) -> None:
        self._worker, self._what = worker, what
        # of this launch: what was dealt to ranks that have died is for nobody
        self._parts = Channel(f"{worker.role}-parts-{worker.init_method}")

    def send(self, parts: Sequence[Any]) -> None:
        """From rank 0 to each rank its own."""
        for rank in range(1, self._worker.world):
            self._parts.put(parts[rank], key=str(rank))
        if self._worker.world > 1:
            self._parts.flush()

    def give_up(self) -> None:
        """The step has failed: the other ranks wait for their parts."""
        self.send([None] * self._worker.world)

    def receive(self) -> Any:
        """What rank 0 has sent. Raises ChannelBrokenError where it has given up."""
        part = self._parts.get(1, key=str(self._worker.rank))[0]
        if part is None:
            raise ChannelBrokenError(f"{self._worker.role}[0] has no {self._what} to deal out")
        return part


class Dealing(Handout, Generic[Item]):
    """What a rank of `worker`'s role knows of a step that is gathered."""

    def __init__(self, worker: Worker, config: RunConfig, algorithm: Algorithm, learner: Learns[Item],
                 deal: Dealer[Item]) -> None:
        super().__init__(worker, "samples")
        self._config, self._algorithm = config, algorithm
        self._learner: Learns[Item] = learner
        self._deal: Dealer[Item] = deal
        self._samples = StepSamples(algorithm, config)

    def collect(self, groups: In[SampleGroup]) -> bool:
        """Take a round of samples for the next `train`; whether so many take part by now that it needs no other. Only
        rank 0 knows, the others say yes."""
        if self._worker.rank > 0:
            return True
        self._gather(groups)
        return self._samples.is_enough()

    def train(self, groups: In[SampleGroup]) -> tuple[StepSamples, dict[str, float]] | None:
        """Train a step on the samples of the channel and those collected before; those samples, and the metrics of
        training. None on ranks that only get their part."""
        if self._worker.rank > 0:
            part, state = self.receive()
            self._learner.train(part)
            self._algorithm.state = state
            return None
        try:
            self._gather(groups)
            samples, self._samples = self._samples, StepSamples(self._algorithm, self._config)
            dealt = self._deal(samples.chosen(), self._algorithm, self._config, self._learner.version, self._worker.world)
            self.send([(part, dealt.state) for part in dealt.parts])
        except BaseException:
            self.give_up()
            raise
        metrics = {**dealt.metrics, **self._learner.train(dealt.parts[0])}
        self._algorithm.state = dealt.state
        return samples, metrics

    def _gather(self, groups: In[SampleGroup]) -> None:
        self._samples.add(group for chunk in groups.chunks(CHUNK, at_least=1) for group in chunk)
