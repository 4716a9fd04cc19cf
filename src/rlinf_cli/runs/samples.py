"""`samples.jsonl`: what the policy was asked, what it said and what that earned."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rlinf_cli.runs.jsonl import StepLines, finite_or_none, read_lines

if TYPE_CHECKING:
    from rlinf_cli.rl.trajectory import Sample


class SamplesWriter:
    """Appends one line a sample. `after` is as for `MetricsWriter`."""

    def __init__(self, path: Path, after: int) -> None:
        self._lines = StepLines(path, after)

    def __enter__(self) -> SamplesWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def write(self, step: int, samples: Iterable[Sample]) -> None:
        """Append the samples of one step. Raises ValueError and RunError as `MetricsWriter.write`."""
        self._lines.write(step, [_line(sample) for sample in samples])

    def close(self) -> None:
        self._lines.close()


def read_samples(path: Path) -> list[dict[str, Any]]:
    """A run's lines, oldest first; `reward` is None where there was none. Raises UsageError as `read_metrics`."""
    return list(read_lines(path))


def _line(sample: Sample) -> dict[str, Any]:
    line = {"id": sample.id, "prompt": sample.prompt, "response": sample.response, "answer": sample.answer,
            "reward": finite_or_none(sample.reward),
            "rewards": {name: finite_or_none(value) for name, value in sample.rewards.items()},
            "finish": sample.finish}
    return line | {"error": sample.error} if sample.error else line
