from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlinf_cli.rl.trajectory import Sample


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """Make a sample of which only what a reward sees matters."""

    def sample(response: str = "", answer: str | None = None, **rest: Any) -> Sample:
        ids, floats = np.zeros(1, np.int32), np.zeros(1, np.float32)
        rest = {"finish": "stop", **rest}
        return Sample("0-1-0", "0-1", ids, ids, np.ones(1, np.bool_), floats, ids, response=response, answer=answer,
                      **rest)

    return sample
