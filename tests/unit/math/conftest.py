from collections.abc import Callable

import numpy as np
import pytest

from rlinf_cli.rl.trajectory import Sample


@pytest.fixture
def sample() -> Callable[..., Sample]:
    def sample(response: str, answer: str | None) -> Sample:
        ids, floats = np.zeros(1, np.int32), np.zeros(1, np.float32)
        return Sample("0-1-0", "0-1", ids, ids, np.ones(1, np.bool_), floats, ids, "stop", response=response, answer=answer)

    return sample
