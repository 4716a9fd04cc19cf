"""Lengths of batches that were not measured."""

import numpy as np
import pytest

from rlinf_cli.scheduling.lengths import capped, constant, lognormal, pareto, quantiles, resample, warning

MEASURED = np.array([4, 8, 15, 16, 23, 42, 108, 300])


class TestResampling:
    def test_a_batch_of_the_same_size_is_the_measured_one(self):
        assert resample(MEASURED, 8, seed=5).tolist() == MEASURED.tolist()

    def test_twice_as_many_are_each_one_twice(self):
        assert sorted(resample(MEASURED, 16).tolist()) == sorted([*MEASURED.tolist()] * 2)

    def test_fewer_are_evenly_spaced(self):
        assert sorted(resample(MEASURED, 4).tolist()) == [8, 16, 42, 300]
        assert resample(MEASURED, 1).tolist() == [23]

    def test_the_seed_says_in_which_order(self):
        one, same, other = resample(MEASURED, 64, 1), resample(MEASURED, 64, 1), resample(MEASURED, 64, 2)
        assert one.tolist() == same.tolist() != other.tolist()
        assert sorted(one.tolist()) == sorted(other.tolist())

    def test_responses_of_a_prompt_stay_together(self):
        found = resample(np.array([1, 2, 900, 901, 30, 31]), 12, group=2).reshape(-1, 2)
        assert sorted(map(tuple, found.tolist())) == [(1, 2)] * 2 + [(30, 31)] * 2 + [(900, 901)] * 2

    def test_groups_that_the_batch_cannot_keep_are_not_kept(self):
        assert len(resample(MEASURED, 5, group=2)) == 5
        assert len(resample(MEASURED, 6, group=3)) == 6

    def test_nothing_measured_is_refused(self):
        with pytest.raises(ValueError, match="no response was measured"):
            resample(np.array([], np.int64), 4)


class TestLimits:
    def test_what_is_cut_and_how_much_that_is(self):
        found, share = capped(MEASURED, 100)
        assert found.tolist() == [4, 8, 15, 16, 23, 42, 100, 100]
        assert share == 0.25

    def test_no_limit(self):
        assert capped(MEASURED, 0) == (pytest.approx(MEASURED), 0.0)

    def test_longer_ones_than_were_measured_are_extrapolated(self):
        cut, _ = capped(MEASURED, 100)
        assert warning(cut, 200).startswith("lengths are extrapolated: up to 200 tokens are allowed, 25 % of the measured")
        assert "ended at 100" in warning(cut, 200)

    def test_the_same_limit_is_not_nor_one_that_none_reached(self):
        cut, _ = capped(MEASURED, 100)
        assert warning(cut, 100) == ""
        assert warning(MEASURED, 4000) == ""

    def test_quantiles(self):
        assert quantiles(np.array([0, 10, 20]), (0.0, 0.25, 1.0)).tolist() == [0, 5, 20]


class TestDistributions:
    def test_constant(self):
        assert constant(7, 3).tolist() == [7, 7, 7]

    def test_lognormal_has_the_mean_and_the_spread_that_were_asked(self):
        found = lognormal(1000, 0.8, 4096)
        assert found.mean() == pytest.approx(1000, rel=0.01)
        assert np.log(found).std() == pytest.approx(0.8, rel=0.01)

    def test_pareto_has_its_tail(self):
        found = pareto(100, 1.5, 8192)
        assert found.min() == 100
        assert np.mean(found > 400) == pytest.approx(0.125, abs=0.001)

    def test_a_small_batch_is_like_a_large_one(self):
        assert np.median(lognormal(1000, 0.8, 33)) == pytest.approx(np.median(lognormal(1000, 0.8, 4097)), abs=1)

    @pytest.mark.parametrize("batch", [lognormal(100, 2.0, 512, 300), pareto(100, 0.7, 512, 300)])
    def test_they_end_at_the_limit_and_have_a_token_at_least(self, batch):
        assert batch.max() == 300
        assert batch.min() >= 1
        assert batch.dtype == np.int64

    def test_the_seed_is_the_order(self):
        one, other = lognormal(100, 1.0, 64, seed=1), lognormal(100, 1.0, 64, seed=2)
        assert one.tolist() != other.tolist()
        assert sorted(one.tolist()) == sorted(other.tolist())
