"""`samples.jsonl`: what the policy was asked, what it said and what that earned; of episodes, how they began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rlinf_cli.runs.jsonl import StepLines, finite_or_none, read_lines

if TYPE_CHECKING:
    from rlinf_cli.rl.segment import Episode
    from rlinf_cli.rl.trajectory import Said, Sample


class SamplesWriter:
    """Appends one line a sample. `after` is as for `MetricsWriter`."""

    def __init__(self, path: Path, after: int) -> None:
        self._lines = StepLines(path, after)

    def __enter__(self) -> SamplesWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def write(self, step: int, samples: Iterable[Sample | Episode]) -> None:
        """Append the samples, or the episodes, of one step. Raises ValueError and RunError as `MetricsWriter.write`."""
        self._lines.write(step, [_line(sample) for sample in samples])

    def close(self) -> None:
        self._lines.close()


def read_samples(path: Path) -> list[dict[str, Any]]:
    """A run's lines, oldest first; `reward` is None where there was none. Raises UsageError as `read_metrics`."""
    return list(read_lines(path))


def _line(sample: Sample | Episode) -> dict[str, Any]:
    from rlinf_cli.rl.segment import Episode  # here: who only reads files needs no NumPy

    if isinstance(sample, Episode):
        return {"id": sample.id, "task": sample.task, "state": sample.state, "seed": sample.seed,
                "return": finite_or_none(sample.returned), "length": sample.length, "success": sample.success,
                "truncated": sample.truncated}
    line: dict[str, Any] = {"id": sample.id, "prompt": sample.prompt, "response": sample.response, "answer": sample.answer,
            "reward": finite_or_none(sample.reward),
            "rewards": {name: finite_or_none(value) for name, value in sample.rewards.items()},
            "finish": sample.finish}
    if sample.transcript:
        line["transcript"] = [_part(said) for said in sample.transcript]
    return line | {"error": sample.error} if sample.error else line


def _part(said: Said) -> dict[str, Any]:
    part: dict[str, Any] = {"role": said.role, "text": said.text}
    if said.name:
        part["name"] = said.name
    return part | {"reward": said.reward} if said.reward else part
