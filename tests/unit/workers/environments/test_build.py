import numpy as np
import pytest
from gymnasium import spaces

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workers.environments import build
from rlinf_cli.workers.environments.build import _described, _space


@pytest.mark.parametrize("space", [
    spaces.Discrete(4, start=2), spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(0, 255, (4, 5, 3), np.uint8),
    spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32)),
    spaces.Dict({"b": spaces.Box(-1, 1, (2,), np.float64), "a": spaces.Box(0, 255, (2, 2, 3), np.uint8)}),
], ids=repr)
def test_a_space_is_the_same_after_it_was_written_down(space):
    import json

    assert _space(json.loads(json.dumps(_described(space)))) == space


def test_an_environment_is_looked_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("RLINF_CACHE", str(tmp_path))
    config = resolve([], ["env.name=CartPole-v1"], {}, load_plugins(None))
    first = build.spaces(config)
    monkeypatch.setattr(build, "_looked_at", lambda *_: pytest.fail("it was looked at again"))
    assert build.spaces(config) == first
    assert first[1] == spaces.Discrete(2)
