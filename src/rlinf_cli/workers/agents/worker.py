"""The agent role: runs the episodes of a step, and asks the rollouts for every turn."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import Completion, Request
from rlinf_cli.errors import RunError
from rlinf_cli.flow.channel import Channel, Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, concurrent
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import Prompt, SampleGroup
from rlinf_cli.state.routing import Routing
from rlinf_cli.workers.agents.build import build_agent, build_tools
from rlinf_cli.workers.agents.chat import ChatTemplate
from rlinf_cli.workers.agents.conversation import Limits, Surroundings
from rlinf_cli.workers.agents.episodes import Episodes, Tally
from rlinf_cli.workers.agents.toolbox import Toolbox, ToolUsage
from rlinf_cli.workers.generation import Task, tasks
from rlinf_cli.workers.prompts import PromptEncoder
from rlinf_cli.workers.result import TrainResult
from rlinf_cli.workers.serving import Asked

_POLL_S = 0.01
"""Between two looks for more tasks while episodes are under way."""
_READ = 256
"""Turns taken at once."""


class AgentWorker(Worker):
    """All episodes run in one event loop; calls of several steps share it, and the tools."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        model = resolve_model(config.model.name, config.seed, plugins())
        self._encoder = PromptEncoder(model, config.rollout.max_prompt_tokens)
        self._chat = ChatTemplate(self._encoder.tokenizer, config.model.name)
        self._tasks = tasks(config, self._encoder.stops(config.rollout.stop), 1)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="rlinf-agents", daemon=True).start()
        self._tools = Toolbox(build_tools(config), config.tools)
        self._await(self._tools.open())
        self._agent = build_agent(config, self._tools.specs)

    @concurrent
    def run(self, prompts: In[Prompt], turns: In[Completion], requests: Out[Asked], samples: Out[SampleGroup],
            rollout: Group) -> TrainResult:
        """Do every task, `group_size` times or, for an evaluation, `eval.k` times; a group leaves when its last episode is over.
        Raises RunError when more episodes fail than `agent.max_failures`."""
        call = _Call(self, prompts, samples, Line(self._loop, requests, turns, Routing(rollout.size)))
        before = {name: ToolUsage(**vars(usage)) for name, usage in self._tools.usage.items()}
        tally = call.run()
        self._check(tally)
        return TrainResult(metrics=metrics(tally, call.line.routing.moved, before, self._tools.usage))

    def close(self) -> None:
        self._await(self._tools.close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _await(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _check(self, tally: Tally) -> None:
        most = self._config.agent.max_failures
        if tally.failures > most * tally.episodes:
            (cause, count), = tally.failed.most_common(1)
            raise RunError(f"{tally.failures} of {tally.episodes} episodes have failed, more than agent.max_failures={most:g}; "
                           f"{count} of them: {cause}")


class Line:
    """To the rollouts and back: requests go to the replica that routing names, completions wake those who wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: Channel, turns: Channel, routing: Routing) -> None:
        self.routing, self.evaluation = routing, False
        self._loop, self._requests, self._turns = loop, requests, turns
        self._waiting: dict[str, asyncio.Future[Completion]] = {}

    async def answer(self, request: Request, episode: str, fresh: int) -> Completion:
        """See `conversation.Policy`."""
        replica = self.routing.ask(request.id, episode, len(request.prompt_ids), fresh, request.sampling.max_new_tokens)
        future: asyncio.Future[Completion] = self._loop.create_future()
        self._waiting[request.id] = future
        try:
            self._requests.put(Asked(request, self.evaluation), weight=request.sampling.max_new_tokens, key=replica)
            return await future
        finally:
            self._waiting.pop(request.id, None)
            self.routing.answered(request.id)

    def read(self) -> None:
        """Hand out completions until the channel closes; on a thread of its own."""
        try:
            for chunk in self._turns.chunks(_READ, at_least=1):
                self._loop.call_soon_threadsafe(self._hand_out, chunk)
            self._end(RunError("the rollouts have ended while episodes are under way"))
        except Exception as error:  # it belongs to whoever waits
            self._end(error)

    def _hand_out(self, completions: list[Completion]) -> None:
        for completion in completions:
            future = self._waiting.get(completion.id)
            if future is not None and not future.done():  # else of an episode that has been given up
                future.set_result(completion)

    def _end(self, error: Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


@dataclass
class _Call:
    """One call of `run`: its thread takes tasks and puts groups, episodes run in the loop."""

    worker: AgentWorker
    prompts: Channel
    samples: Channel
    line: Line
    tally: Tally = field(default_factory=Tally)

    def run(self) -> Tally:
        worker = self.worker
        config = worker._config
        limits = Limits(config.agent.max_turns, config.agent.max_tokens, config.agent.max_shown_tokens)
        around = Surroundings(self.line, worker._encoder, worker._chat, worker._tools, limits)
        self._episodes = Episodes(worker._agent, around, config.agent.concurrency)
        self._done: queue.SimpleQueue[tuple[Lease, Any]] = queue.SimpleQueue()
        threading.Thread(target=self.line.read, name="rlinf-turns", daemon=True).start()
        futures: dict[int, Any] = {}
        try:
            for lease, group in self._groups(futures):
                self.samples.put(group, weight=sum(len(sample) for sample in group), settles=[lease])
        finally:
            for future in futures.values():
                future.cancel()
        return self.tally

    def _groups(self, futures: dict[int, Any]) -> Iterator[tuple[Lease, SampleGroup]]:
        """As they end. Raises what an episode cannot survive."""
        is_open = True
        while is_open or futures:
            if is_open and (room := self._room(len(futures))):
                try:
                    for lease in self.prompts.lease(room, at_least=0 if futures else 1):
                        futures[lease.number] = self._begin(lease)
                except ChannelClosedError:
                    is_open = False
                    continue
            try:
                lease, future = self._done.get(timeout=_POLL_S if is_open else None)
            except queue.Empty:
                continue
            del futures[lease.number]
            yield lease, future.result()

    def _room(self, groups: int) -> int:
        """Tasks that may be begun."""
        each = max(task.responses for task in self.worker._tasks.values())
        return max(0 if groups else 1, self.worker._config.agent.concurrency // each - groups)

    def _begin(self, lease: Lease) -> Any:
        prompt: Prompt = lease.item
        task: Task = self.worker._tasks[prompt.evaluation]
        self.line.evaluation |= prompt.evaluation
        future = asyncio.run_coroutine_threadsafe(self._episodes.group(prompt, task.responses, task.sampling, self.tally),
                                                  self.worker._loop)
        future.add_done_callback(lambda done: self._done.put((lease, done)))
        return future


def metrics(tally: Tally, moved: int, before: Mapping[str, ToolUsage], after: Mapping[str, ToolUsage]) -> dict[str, float]:
    """Of a step's episodes, and of the calls of tools since `before`."""
    episodes = max(1, tally.episodes)
    found = {"agent/episodes": float(tally.episodes), "agent/turns/mean": tally.turns / episodes,
             "agent/cut_frac": tally.cut / episodes, "agent/failed": float(tally.failures), "agent/moved": float(moved)}
    for name, now in after.items():
        used = {field: value - vars(before[name])[field] for field, value in vars(now).items()}
        asked = used["calls"] - used["cached"] - used["mistakes"] - used["failures"]
        found |= {f"tool/{name}/{field}": float(used[field]) for field in ("calls", "cached", "mistakes", "retries", "failures")}
        found[f"tool/{name}/mean_s"] = used["seconds"] / asked if asked > 0 else 0.0
    return found
