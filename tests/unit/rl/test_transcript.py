import numpy as np
import pytest

from rlinf_cli.rl.transcript import Transcript


def ints(*values):
    return np.array(values, np.int32)


def floats(*values):
    return np.array(values, np.float32)


@pytest.fixture
def transcript():
    made = Transcript(ints(1, 2), 12)
    made.turn(ints(3, 4, 5), floats(-1, -2, -3), ints(7, 7, 8), "first")
    made.show(ints(6, 6), "shown", "tool", "search")
    made.turn(ints(9), floats(-4), ints(9), "second")
    return made


def test_tokens_are_appended_and_nothing_else(transcript):
    assert transcript.ids.tolist() == [1, 2, 3, 4, 5, 6, 6, 9]
    assert transcript.response_ids.tolist() == [3, 4, 5, 6, 6, 9]
    assert transcript.mask.tolist() == [True, True, True, False, False, True]
    assert transcript.logprobs.tolist() == [-1, -2, -3, 0, 0, -4]
    assert transcript.versions.tolist() == [7, 7, 8, 8, 8, 9]
    assert (transcript.turns, transcript.room) == (2, 4)
    assert [(one.role, one.text, one.name) for one in transcript.said] == [
        ("policy", "first", ""), ("tool", "shown", "search"), ("policy", "second", "")]


def test_what_does_not_fit_is_refused_and_leaves_nothing(transcript):
    with pytest.raises(ValueError, match="5 tokens do not fit: 4 of 12 are left"):
        transcript.show(ints(1, 1, 1, 1, 1), "more")
    assert transcript.room == 4
    assert len(transcript.said) == 3
    transcript.show(ints(1, 1, 1, 1), "more")
    assert transcript.room == 0


def test_arrays_of_a_turn_have_one_length(transcript):
    with pytest.raises(ValueError, match="2 tokens, 1 log-probabilities and 2 versions"):
        transcript.turn(ints(1, 2), floats(0), ints(0, 0), "")


def test_rewards_of_turns_stand_at_their_last_tokens(transcript):
    assert transcript.token_rewards is None
    transcript.earn(0.5)
    transcript.show(ints(1), "more")
    transcript.earn(0.25)
    assert transcript.token_rewards.tolist() == [0, 0, 0, 0, 0, 0.75, 0]
    assert [one.reward for one in transcript.said] == [0, 0, 0.75, 0]


def test_no_turn_no_reward():
    empty = Transcript(ints(1), 4)
    with pytest.raises(ValueError, match="comes after the turn"):
        empty.earn(1.0)
    assert [len(part) for part in (empty.response_ids, empty.mask, empty.logprobs, empty.versions)] == [0, 0, 0, 0]
    assert empty.mask.dtype == np.bool_
