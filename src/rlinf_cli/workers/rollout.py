"""The rollout role: turns prompts into samples, under the weights that were published last."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import Completion
from rlinf_cli.flow.client import client
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.weights_layout import Manifest
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.flow.worker import Worker, concurrent, control, on_device
from rlinf_cli.rl.trajectory import Prompt, SampleGroup
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workers.generation import Generator
from rlinf_cli.workers.result import TrainResult
from rlinf_cli.workers.serving import Asked, Serving
from rlinf_cli.workers.sharing import offer_engine


class RolloutWorker(Worker):
    """One engine replica. Replicas take prompts from the same channels as they have room."""

    def __init__(self, config: RunConfig) -> None:
        self._generator = Generator(config, self.device, self.world)
        self._engine, self._share = self._generator.engine, self._generator.share
        self._receiver = Receiver(client(), self._generator.model, keep=config.cluster.weights_delta)
        self._recomputes = config.rollout.in_flight == "recompute"
        offer_engine(self.role, self._share)

    @concurrent
    @on_device
    def generate(self, prompts: In[Prompt], samples: Out[SampleGroup]) -> TrainResult:
        """Answer every prompt, see `Generator`. Several calls share the engine."""
        surplus = self._generator.generate(prompts, samples)
        return TrainResult(surplus=surplus, usage=self._share.usage())

    @concurrent
    @on_device
    def serve(self, requests: In[Asked], turns: Out[Completion]) -> TrainResult:
        """Answer the requests of agents that are keyed with this rank, see `Serving`."""
        Serving(self._share, requests, turns, self.rank).run()
        return TrainResult(usage=self._share.usage())

    @on_device
    def measure_decoding(self, prompts: Sequence[Prompt], seconds: float) -> Usage:
        """What decode steps take with so few, and so many, responses at once, measured for about so long."""
        return self._generator.measure_decoding(prompts, seconds)

    @control
    def update_weights(self, manifest: Manifest) -> str:
        """Take over the published weights, once no evaluation is under way; the checksum of what the engine then holds."""
        with spent("sync"), self._share.updating():
            return self._receiver.update(self._engine, manifest, self._recomputes)

    @concurrent
    def abort(self) -> None:
        """End all running requests with what they have."""
        self._engine.abort()

    def onload(self) -> int:
        return self._engine.resume_memory()

    def offload(self) -> int:
        return self._engine.release_memory()

    def close(self) -> None:
        self._share.close()
