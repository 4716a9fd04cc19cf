"""The rollout role: turns prompts into samples, under the weights that were published last."""

from __future__ import annotations

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.client import client
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.weights import Manifest, Receiver
from rlinf_cli.flow.worker import Worker, control
from rlinf_cli.rl.trajectory import Prompt, SampleGroup
from rlinf_cli.workers.generation import Generator


class RolloutWorker(Worker):
    """One engine replica. Replicas take prompts from the same channel as they have room."""

    def __init__(self, config: RunConfig) -> None:
        self._generator = Generator(config, self.device, self.world)
        self._receiver = Receiver(client(), self._generator.model)

    def generate(self, prompts: In[Prompt], samples: Out[SampleGroup]) -> dict[str, float]:
        """Answer every prompt, see `Generator`; the engine's counters."""
        self._generator.generate(prompts, samples)
        return dict(self._generator.engine.stats())

    @control
    def update_weights(self, manifest: Manifest) -> str:
        """Take over the published weights; the checksum of what the engine then holds."""
        with spent("sync"):
            self._generator.engine.update_weights(manifest.version, self._receiver.tensors(manifest), manifest.adapter)
            return self._generator.engine.weights_checksum()

    @control
    def abort(self) -> None:
        """End all running requests with what they have."""
        self._generator.engine.abort()

    def close(self) -> None:
        self._generator.engine.close()
