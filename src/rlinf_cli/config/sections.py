"""The sections of the configuration, as far as the core knows their keys. A docstring under a field is its help text."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlinf_cli.config.rules import key


@dataclass(frozen=True)
class ClusterConfig:
    """The devices, and the Ray cluster that owns them."""

    devices: str = key("auto", pattern=r"auto|(cpu|cuda):[1-9][0-9]*", form="auto, cpu:N or cuda:N")
    """Devices to use; `auto`: every GPU, or the CPU slots of a machine without one."""
    address: str = ""
    """Address of an existing Ray cluster; empty: a private one is started."""
    start_timeout_s: float = key(300.0, gt=0)
    """Seconds that a worker may take to start."""
    call_timeout_s: float = key(3600.0, gt=0)
    """Seconds that one call to a worker may take."""
    stall_timeout_s: float = key(300.0, gt=0)
    """Seconds without any progress after which all workers write down where they are."""
    restarts: int = key(3, ge=0)
    """Times that a role's processes may be started again after a death, counted anew with every step that is trained."""
    fused: bool = False
    """Whether roles with the same ranks on the same devices share their processes, and one copy of the weights."""
    weights_delta: bool = False
    """Send engines on other nodes only those weights that have changed since the last version, for slow links."""


@dataclass(frozen=True)
class ModelConfig:
    """The policy to train."""

    name: str = "tiny:digits"
    """A named model, as NAME or NAME:VARIANT, a Hugging Face directory, a GGUF file, or a hub name ORG/NAME; with an
    environment a named policy."""

    @property
    def variant(self) -> str:
        """What follows the colon of a named model; empty when there is none."""
        return self.name.partition(":")[2]


@dataclass(frozen=True)
class EnvConfig:
    """The simulators that a policy acts in."""

    name: str = ""
    """A named environment, as NAME or NAME:TASK, or a gymnasium id such as CartPole-v1; empty: none."""
    count: int = key(16, ge=1)
    """Environments that are stepped side by side."""
    processes: int = key(1, ge=1)
    """Processes in which each rank of the environment role steps its share of them; 1: its own."""
    halves: int = key(0, ge=0, le=2)
    """2: while one half of the environments is stepped, the policy serves the other. 1: all at once. 0: 2 where they can go
    on at the same time, because they are not in one process or the environments have processes of their own."""
    group: int = key(1, ge=1)
    """Environments that begin from the same initial state, for advantages relative to a group."""
    episodes: str = key("continue", choices=("continue", "anew"))
    """What a step begins with: the episodes that the step before has left, or new ones everywhere."""
    resident: bool = True
    """Whether simulator and policy both stay on a device that they share; if not, the policy makes room each time that the
    environments are stepped."""


@dataclass(frozen=True)
class DataConfig:
    """The prompts."""

    name: str = "digits"
    """A named data set, a .jsonl or .parquet file, or a hub name ORG/NAME; several with weights as `a.jsonl + 0.5*b.jsonl`."""
    prompt_key: str = ""
    """Column of the prompt; empty: recognised from the columns."""
    answer_key: str = ""
    """Column of the answer; empty: recognised from the columns."""
    target_key: str = ""
    """Column of the response that supervised training learns; empty: the answer as it is written."""
    split: str = "train"
    """Split of a data set of the Hugging Face hub."""
    system_prompt: str = ""
    """System message put before the messages of every prompt; a prompt that is text becomes the user's message."""
    overlong: str = key("drop", choices=("drop", "error"))
    """What happens to prompts longer than `rollout.max_prompt_tokens`: they are left out before the run starts, and
    counted, or the run is refused."""
    shuffle: bool = True
    """Whether the rows come in an order drawn from the seed, a new one each epoch."""


@dataclass(frozen=True)
class RewardConfig:
    """What a response is worth."""

    name: str = "exact"
    """A named reward or `module:function`; several with weights as `math + 0.2*format`."""
    timeout_s: float = key(10.0, gt=0)
    """Seconds that the reward of one sample may take; its process is then killed, and the sample left out and counted."""
    processes: int = key(1, ge=1)
    """Processes that compute rewards."""


@dataclass(frozen=True)
class AlgorithmConfig:
    """How rewards become a loss."""

    name: str = "grpo"
    """A named algorithm."""
    epochs: int = key(1, ge=1)
    """Passes over the samples of each step."""
    minibatches: int = key(1, ge=1)
    """Optimiser steps in a pass."""


@dataclass(frozen=True)
class RolloutConfig:
    """What is generated in a step, and how tokens are drawn."""

    prompts: int = key(16, ge=1)
    """Prompts in a step."""
    group_size: int = key(8, ge=1)
    """Samples of each prompt."""
    steps: int = key(128, ge=1)
    """With an environment: actions that a step takes in each of them."""
    max_prompt_tokens: int = key(1024, ge=1)
    """Longest prompt, in tokens."""
    max_new_tokens: int = key(256, ge=1)
    """Longest response, in tokens."""
    temperature: float = key(1.0, gt=0)
    """Sampling temperature."""
    top_k: int = key(0, ge=0)
    """Draw from the K likeliest tokens; 0: from all."""
    top_p: float = key(1.0, gt=0, le=1)
    """Draw from the likeliest tokens that together have this probability; 1: from all."""
    min_p: float = key(0.0, ge=0, lt=1)
    """Draw from tokens at least this likely relative to the likeliest; 0: from all."""
    stop: list[str] = key([], pattern=r"(?s:.+)", form="texts that are not empty")  # noqa: RUF009
    """Strings that end a response."""
    staleness: int = key(0, ge=0)
    """Steps that generation may run ahead of training: no token is trained that is more versions of the weights old. 0:
    each step is generated by the weights that the step before it has trained."""
    in_flight: str = key("continue", choices=("continue", "recompute"))
    """What new weights mean for responses that are being generated: they go on with the keys and values that they have,
    or with those that the new weights give for what was written so far."""
    overprovision: float = key(0.0, ge=0, le=4)
    """Share of prompts that is asked beyond `rollout.prompts`; those that finish last are dropped, which favours short
    responses (`rollout/overprovision/length_bias`)."""

    @property
    def is_truncated(self) -> bool:
        """Whether tokens are drawn from a part of the distribution only: the engine's log-probabilities are then of
        another one than the trainer's."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


@dataclass(frozen=True)
class EngineConfig:
    """What generates."""

    name: str = "torch"
    """A named generation engine."""


@dataclass(frozen=True)
class TrainerConfig:
    """What holds the parameters and the optimiser."""

    name: str = "torch"
    """A named trainer."""


@dataclass(frozen=True)
class CriticConfig:
    """What estimates the reward to come, where the algorithm has a critic."""

    model: str = ""
    """Model that the critic begins as, written like `model.name`: a language model, or one with a scalar head, such as a reward
    model; empty: the policy's."""
    lr: float = key(0.0, ge=0)
    """Its peak learning rate; 0: `trainer.lr`."""


@dataclass(frozen=True)
class CheckpointConfig:
    """When the run is saved."""

    every: int = key(0, ge=0)
    """Steps between checkpoints; 0: only at the end."""
    keep_last: int = key(2, ge=1)
    """Checkpoints that are kept."""
    best: str = key("", pattern=r"(-?[^\s/-][^\s/]*(/[^\s/]+)+)?", form="a metric as GROUP/NAME, or -GROUP/NAME")
    """Metric whose best checkpoint is kept too, e.g. `reward/mean`, or `-` before it where less is better; empty: none."""


@dataclass(frozen=True)
class EvalConfig:
    """How the policy is evaluated: during training, and by `rlinf eval`."""

    every: int = key(0, ge=0)
    """Steps between evaluations, one before the first and one after the last step included; 0: none."""
    data: str = ""
    """Data to evaluate on, written like `data.name`; empty: the training data, or fresh rows of a generator."""
    prompts: int = key(128, ge=0)
    """Rows to take from its beginning; 0: all."""
    k: int = key(1, ge=1)
    """Responses to each prompt."""
    temperature: float = key(0.0, ge=0)
    """Sampling temperature; 0: the likeliest token."""
    max_new_tokens: int = key(0, ge=0)
    """Longest response, in tokens; 0: as in training."""
    success: float = 1.0
    """A response whose reward is at least this is a success."""
    episodes: int = key(0, ge=0)
    """With an environment: episodes of each task, in the order of its initial states; 0: one from each initial state, or 100
    where they are drawn from the seed. More than there are initial states: several from each."""
    parallel: int = key(4, ge=1)
    """Environments that an evaluation steps side by side, on each rank; the result does not depend on it."""
    record: int = key(0, ge=0)
    """With an environment: episodes, the first of each evaluation, of which a video is kept in `videos/`."""


@dataclass(frozen=True)
class LogConfig:
    """What is written down."""

    samples: int = key(4, ge=0)
    """Samples of each step that are written to samples.jsonl."""
    trace: int = key(100, ge=0)
    """Steps that trace.json holds, the latest; 0: it is not written."""
    events: bool = False
    """Whether the controller's decisions, and what they follow from, are written to `events.jsonl`, to be replayed."""
    loggers: list[str] = field(default_factory=list)
    """Trackers that get the metrics too: tensorboard, wandb, trackio, or a plugin's. Their keys are `log.NAME.KEY`."""


@dataclass(frozen=True)
class AgentConfig:
    """How a policy that uses tools goes about a task."""

    name: str = ""
    """A named agent; empty: none, a prompt is answered once."""
    max_turns: int = key(8, ge=1)
    """Times that the policy may speak in an episode."""
    max_tokens: int = key(2048, ge=2)
    """Tokens that an episode may have in all: its task, what the policy says (`rollout.max_new_tokens` a turn) and what it is
    shown."""
    max_shown_tokens: int = key(1024, ge=1)
    """Tokens of what is shown at once; more is cut off at its end."""
    concurrency: int = key(1024, ge=1)
    """Episodes under way at once."""
    max_failures: float = key(0.2, ge=0, le=1)
    """Share of a step's episodes that may fail, because of a tool or an error of the agent: they are counted and not trained. The
    run ends beyond it."""


@dataclass(frozen=True)
class ToolsConfig:
    """What an agent can call."""

    name: str = ""
    """Named tools: `search`, or several as `search + python`; empty: none."""
    timeout_s: float = key(30.0, gt=0)
    """Seconds that a call may take."""
    retries: int = key(2, ge=0)
    """Times that a call which failed is tried again, after a pause that doubles; then its episode is given up."""
    concurrency: int = key(64, ge=1)
    """Calls at once."""
    cache: int = key(4096, ge=0)
    """Answers that are kept, of tools that always answer the same; 0: none."""
