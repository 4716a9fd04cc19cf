"""A profile as it is shown."""

import pytest

from rlinf_cli.runs.profiling import Profiled
from rlinf_cli.runs.profiling_report import decoding_lines, duration, facts, length_lines, rows
from rlinf_cli.scheduling.graph import Called, graph_of
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile

ROLLOUT = RoleProfile("rollout", decoding=(DecodePoint(1, 1, 0.001), DecodePoint(1, 4, 0.003), DecodePoint(1, 4, 0.005),
                                           DecodePoint(2, 1, 0.008)), slots=4, prefill_s=0.002)
ACTOR = RoleProfile("actor", (BatchPoint(2, 8, 90, 1, 3.0), BatchPoint(2, 8, 99, 1, 1.0), BatchPoint(2, 8, 95, 1, 1.6),
                              BatchPoint(1, 4, 40, 1, 0.5)), memory=(MemoryPoint(2, 3e9, 1e9),), onload_s=0.25, offload_s=0.5)
PROFILE = Profile("reasoning", {"rollout": ROLLOUT, "actor": ACTOR}, (1, 1, 2, 8), 2, {("rollout", "actor"): 2e-5}, 0.125,
                  hardware="2 cpu")
GRAPH = graph_of([Called("rollout", "generate", (), ("samples",)), Called("actor", "train", ("samples",)),
                  Called("actor", "publish_weights", groups=("rollout",))])


@pytest.mark.parametrize(("seconds", "said"), [(0, "0 us"), (7.891e-6, "7.89 us"), (0.0456, "45.6 ms"), (1.234, "1.23 s"),
                                               (1234.0, "1.23e+03 s")])
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_a_row_for_each_size_on_each_number_of_ranks():
    """The median of what was measured, and the samples of all ranks."""
    assert rows(PROFILE) == [("actor", "1", "4", "500 ms", "125 ms", ""), ("actor", "2", "16", "1.6 s", "100 ms", "3.0 GB")]


def test_the_curves_of_decode_steps_have_one_scale():
    assert decoding_lines(PROFILE, ascii_only=True) == [
        "rollout: a decode step by active responses, 1 replica of up to 4",
        "       1      1 ms  #####", "       4      4 ms  ####################",
        "rollout: a decode step by active responses, 2 replicas at once, each of up to 4",
        "       1      8 ms  ########################################"]


def test_the_histogram_of_lengths():
    lines = length_lines(PROFILE, ascii_only=True)
    assert lines[0] == "responses: 4, 3.0 tokens on average, at most 8"
    assert lines[1:3] == [f"  {'1':>13}   50.0 %  {'#' * 40}", f"  {'2':>13}   25.0 %  {'#' * 20}"]
    assert lines[3] == f"  {'3':>13}    0.0 %"
    assert len(lines) == 9


@pytest.mark.parametrize(("lengths", "labels"), [
    ((5,), ["5"]), ((1, 9), ["1-2", "3-4", "5-6", "7-8", "9"]), ((1, 801), ["1-101", "102-202", "203-303", "304-404", "405-505",
                                                                          "506-606", "607-707", "708-801"]), ((), [])])
def test_bins_are_of_one_width_and_hold_all(lengths, labels):
    profile = Profile("reasoning", {}, lengths)
    lines = length_lines(profile, ascii_only=True)[1:]
    assert [line.split()[0] for line in lines] == labels
    assert sum(float(line.split()[1]) for line in lines) == pytest.approx(100.0 if lengths else 0.0)


def test_what_a_table_has_no_place_for(tmp_path):
    found = Profiled(PROFILE, GRAPH, ["somebody took what nobody declared"], 61.4)
    assert list(facts(found, tmp_path / "p.json")) == [
        ("prompts", "rollout needs 2 ms a response besides its decode steps"),
        ("switch", "actor makes room in 500 ms and comes back in 250 ms"),
        ("transfer", "rollout to actor: 20 us a sample"), ("weights", "actor to rollout: 125 ms"),
        ("warning", "somebody took what nobody declared"), ("hardware", "2 cpu"),
        ("measured", f"in 0:01:01, written to {tmp_path / 'p.json'}"),
        ("next", "rlinf plan --explain, with the same configuration")]
    assert list(facts(found, None))[-1] == ("measured", "in 0:01:01")


def test_the_document_has_graph_and_profile(tmp_path):
    document = Profiled(PROFILE, GRAPH, (), 61.44444).document(tmp_path / "p.json")
    assert document["path"] == str(tmp_path / "p.json")
    assert document["seconds"] == 61.444
    assert document["graph"] == {"nodes": {"rollout": [], "actor": ["rollout"]}, "edges": [["rollout", "actor"]],
                                 "publications": [["actor", "rollout"]]}
    assert document["profile"]["transfers"] == {"rollout > actor": 2e-5}
    assert document["profile"]["roles"]["rollout"]["decoding"][0] == {"replicas": 1, "active": 1, "step_s": 0.001, "steps": 1.0}
