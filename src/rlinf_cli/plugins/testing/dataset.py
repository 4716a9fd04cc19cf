"""Whether a data set keeps the contract of `rlinf_cli.api.Dataset`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

from rlinf_cli.api import Row
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of

FAR = 1_000_003
_ELSEWHERE = """
import pickle, sys
dataset_class, config, seed, indices = pickle.load(sys.stdin.buffer)
dataset = dataset_class(config, seed)
sys.stdout.buffer.write(pickle.dumps([dataset.row(index) for index in indices]))
"""


def check_dataset(target: Any, config: Any = None, seed: int = 0) -> None:
    """Raise AssertionError unless any row can be had at any time, in any order, in any process, and is always the same.

    `target`: the class, built as `target(config, seed)`, or its extension.
    """
    dataset_class, config = target_of(target, config)
    case = _Case(dataset_class, config, seed)
    run_all(
        case.has_rows,
        case.gives_rows_that_can_be_asked,
        case.gives_the_same_in_any_order,
        case.gives_the_same_in_another_process,
    )


class _Case:
    def __init__(self, dataset_class: Any, config: Any, seed: int) -> None:
        self._class, self._config, self._seed = dataset_class, config, seed
        self._dataset = dataset_class(config, seed)
        size = self._dataset.size
        most = FAR if size is None else max(0, size - 1)
        self._indices = sorted({min(index, most) for index in (0, 1, 2, 7, 31, most // 2, most)})

    def has_rows(self) -> None:
        size = self._dataset.size
        require(
            size is None or (isinstance(size, int) and size > 0),
            f"size is {size!r}: it must be the number of rows, more than 0, or None for a generator that never repeats",
        )

    def gives_rows_that_can_be_asked(self) -> None:
        for index in self._indices:
            row = self._dataset.row(index)
            require(isinstance(row, Row), f"row({index}) must be a rlinf_cli.api.Row, not {a(row)}")
            require((row.text is None) != (row.messages is None), f"row({index}) must have text or messages, and not both")
            require(bool(row.text or row.messages), f"row({index}) has an empty prompt")
            for message in row.messages or ():
                require(
                    isinstance(message, dict) and {"role", "content"} <= message.keys(),
                    f"row({index}) has a message without role and content: {message!r}",
                )
            require(
                row.answer is None or isinstance(row.answer, str),
                f"the answer of row({index}) must be a text, not {a(row.answer)}",
            )
            require(pickle.loads(pickle.dumps(row)) == row, f"row({index}) is another one after pickling")

    def gives_the_same_in_any_order(self) -> None:
        first = [self._dataset.row(index) for index in self._indices]
        other = self._class(self._config, self._seed)
        again = [other.row(index) for index in reversed(self._indices)][::-1]
        twice = [self._dataset.row(index) for index in self._indices]
        require(
            first == again == twice,
            "row(index) depends on what was asked before: it must be a function of (config, seed, index), "
            "so that a resumed run sees the same data",
        )

    def gives_the_same_in_another_process(self) -> None:
        sent = pickle.dumps((self._class, self._config, self._seed, self._indices))
        there = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "7"}
        done = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE],
            input=sent,
            capture_output=True,
            env={**os.environ, **there},
            timeout=120,
            check=False,
        )
        require(
            done.returncode == 0,
            f"it cannot be made in another process: {(done.stderr.decode(errors='replace').splitlines() or ['?'])[-1]}",
        )
        require(
            pickle.loads(done.stdout) == [self._dataset.row(index) for index in self._indices],
            "row(index) is another one in another process: does it depend on hash() of a text, on time, or on the machine?",
        )
