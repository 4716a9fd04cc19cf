"""Noise is a function of (seed, id, position), and uniform."""

import numpy as np
import pytest

from rlinf_torch.noise import request_key, uniforms


def keys(*names, seed=0):
    return np.array([request_key(seed, name) for name in names], np.uint64)


def positions(*numbers):
    return np.array(numbers, np.uint64)


def test_known_values():
    """The published first outputs of SplitMix64 from 0; a change here would change what every seeded run says."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    drawn = uniforms(np.zeros(3, np.uint64), positions(0, 1, 2))
    assert drawn.tolist() == [((number >> 16) + 0.5) * 2.0**-48 for number in published]
    assert request_key(0, "0-0/0000") == 14851249913879388375


def test_each_of_seed_id_and_position_matters():
    drawn = {float(uniforms(keys(name, seed=seed), positions(position))[0])
             for name in ("a", "b") for seed in (0, 1) for position in (0, 1)}
    assert len(drawn) == 8


def test_company_does_not_matter():
    alone = [uniforms(keys(name), positions(number))[0] for number, name in enumerate("abcdef")]
    together = uniforms(keys(*"abcdef"), positions(*range(6)))
    assert together.tolist() == alone


def test_seed_and_id_cannot_be_confused():
    assert request_key(1, "1/x") != request_key(11, "/x") != request_key(1, "1x")


def test_the_ends_are_excluded():
    drawn = uniforms(np.arange(200_000, dtype=np.uint64), np.zeros(200_000, np.uint64))
    assert drawn.min() > 0
    assert drawn.max() < 1


@pytest.mark.parametrize("along", ["ids", "positions"])
def test_it_is_uniform_and_uncorrelated(along):
    count = 100_000
    if along == "ids":
        drawn = uniforms(keys(*map(str, range(count))), np.zeros(count, np.uint64))
    else:
        drawn = uniforms(np.full(count, request_key(3, "one"), np.uint64), np.arange(count, dtype=np.uint64))
    observed = np.histogram(drawn, 100, (0, 1))[0]
    # chi-square with 99 degrees of freedom: above 150 once in a thousand
    assert ((observed - count / 100) ** 2 / (count / 100)).sum() < 150
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.015
