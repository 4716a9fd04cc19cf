import importlib
import itertools
from pathlib import Path

import pytest

from rlinf_cli.contracts.environment import Start
from rlinf_cli.workers.environments.pool import Pool


@pytest.fixture
def counting(monkeypatch):
    """The module of that name, which processes of a pool can import too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("counting")


@pytest.fixture
def make_pool(counting):
    """A pool of counting environments: episode k of environment i has the seed 100 * i + k, and all rows have begun."""
    pools = []

    def make(count, processes, halves=1, behaviour="", episodes=None, **settings):
        numbers = [itertools.count(1) for _ in range(count)]
        seed_of = episodes or (lambda index, number: 100 * index + number)
        pool = Pool(counting.Counting(behaviour), count, processes, "cpu",
                    lambda index: Start(seed_of(index, next(numbers[index]))), halves=halves, **settings)
        pools.append(pool)
        for half in range(halves):
            pool.reset(half, [Start(seed_of(half * pool.size + row, 0)) for row in range(pool.size)])
        return pool

    yield make
    for pool in pools:
        pool.close()
