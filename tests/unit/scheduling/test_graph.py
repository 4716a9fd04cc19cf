"""Stage graphs from the calls of a step, and what is said where items flowed otherwise."""

from itertools import permutations

import pytest

from rlinf_cli.scheduling.graph import Called, Ends, Flowed, Graph, Node, condense, graph_of, verify

GRPO = (Called("rollout", "generate", ("prompts",), ("samples",)), Called("reward", "score", ("samples",), ("scored",)),
        Called("reference", "score", ("scored",), ("ready",)), Called("actor", "train", ("ready",)),
        Called("actor", "publish_weights", groups=("rollout",)))
EMBODIED = (Called("environment", "interact", ("tasks", "actions"), ("observations",)),
            Called("rollout", "act", ("observations",), ("actions", "segments")),
            Called("actor", "train", ("segments",)), Called("actor", "publish_weights", groups=("rollout",)))


def shape(graph):
    return {node.name: graph.after(node) for node in graph.nodes}


def test_a_chain_of_roles():
    graph = graph_of(GRPO)
    assert shape(graph) == {"rollout": (), "reward": ("rollout",), "reference": ("reward",), "actor": ("reference",)}
    assert graph.edges == (("rollout", "reward"), ("reward", "reference"), ("reference", "actor"))
    assert graph.channels["samples"] == Ends(("rollout",), ("reward",))
    assert graph.channels["prompts"] == Ends((), ("rollout",))


def test_new_weights_are_edges_of_their_own_and_close_no_circle():
    graph = graph_of(GRPO)
    assert graph.publications == (("actor", "rollout"),)
    assert ("actor", "rollout") not in graph.edges
    assert len(graph.nodes) == 4


def test_a_circle_is_one_node_named_by_its_roles():
    graph = graph_of(EMBODIED)
    assert shape(graph) == {"environment+rollout": (), "actor": ("environment+rollout",)}
    assert set(graph.edges) == {("environment", "rollout"), ("rollout", "environment"), ("rollout", "actor")}
    assert graph.node("rollout") == Node(("environment", "rollout"))


def test_two_circles_and_what_lies_between_them():
    ring = {("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "c"), ("e", "f")}
    assert [node.name for node in condense("abcdef", ring)] == ["a+b", "c+d+e", "f"]


def test_several_calls_of_a_role_are_one_node():
    """Dynamic sampling asks for more prompts, and gathers what it has between."""
    again = (Called("rollout", "generate", ("prompts-2",), ("samples-2",)),
             Called("reward", "score", ("samples-2",), ("scored-2",)), Called("actor", "train", ("scored-2",)))
    first = (*GRPO[:2], Called("actor", "collect", ("scored",)))
    graph = graph_of((*first, *again))
    assert shape(graph) == {"rollout": (), "reward": ("rollout",), "actor": ("reward",)}


def test_a_channel_with_several_ends():
    """One that is fanned out, and one that two roles put into."""
    graph = graph_of((Called("rollout", "generate", (), ("samples",)), Called("critic", "score", ("samples",), ("ready",)),
                      Called("reference", "score", ("samples",), ("ready",)), Called("actor", "train", ("ready",))))
    assert shape(graph) == {"rollout": (), "critic": ("rollout",), "reference": ("rollout",), "actor": ("critic", "reference")}


def test_a_role_that_takes_back_what_it_puts_is_no_circle():
    graph = graph_of((Called("tree", "expand", ("leaves", "start"), ("leaves", "samples")),
                      Called("actor", "train", ("samples",))))
    assert graph.edges == (("tree", "actor"),)
    assert shape(graph) == {"tree": (), "actor": ("tree",)}


def test_a_role_that_another_one_asks_in_the_midst_of_its_items_is_in_a_circle_with_it():
    graph = graph_of((Called("search", "walk", ("tasks",), ("samples",), groups=("rollout",)),
                      Called("actor", "train", ("samples",)), Called("actor", "publish_weights", groups=("rollout",))))
    assert shape(graph) == {"search+rollout": (), "actor": ("search+rollout",)}
    assert graph.publications == (("actor", "rollout"),)


def test_a_role_without_channels_is_a_node_of_its_own():
    graph = graph_of((Called("actor", "train", ("rows",)), Called("monitor", "look")))
    assert shape(graph) == {"actor": (), "monitor": ()}


@pytest.mark.parametrize("calls", list(permutations(GRPO)), ids=lambda calls: "-".join(call.method for call in calls))
def test_producers_come_first_in_whatever_order_the_calls_were_issued(calls):
    graph = graph_of(calls)
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    assert all(places[producer] < places[consumer] for producer, consumer in graph.edges)
    assert len(places) == 4


def test_nothing_was_called():
    assert graph_of(()) == Graph(())


# ---- what flowed ----

FLOWED = {"prompts": Flowed({"driver": 2}, {"rollout": 2}), "samples": Flowed({"rollout": 2}, {"reward": 2}),
          "scored": Flowed({"reward": 2}, {"reference": 2}), "ready": Flowed({"reference": 2}, {"actor": 2})}


def test_what_flowed_as_declared_is_not_mentioned():
    assert verify(graph_of(GRPO), FLOWED) == []


def test_roles_that_share_a_process_are_each_of_them():
    assert verify(graph_of(GRPO), {"ready": Flowed({"reference": 2}, {"rollout+actor": 2})}) == []
    (said,) = verify(graph_of(GRPO), {"samples": Flowed({"rollout+actor": 2}, {"rollout+actor": 1, "reward": 1})})
    assert said.startswith("rollout+actor took from 'samples' (1 item), which no method that was called declares")


@pytest.mark.parametrize(("channel", "flowed", "said"), [
    ("scored", Flowed({}, {}), ["reward declares that it puts into 'scored', but put nothing there"]),
    ("scored", Flowed({"reward": 3}, {"driver": 3}),
     ["reference declares that it takes from 'scored', but took none of 3 items"]),
    ("samples", Flowed({"rollout": 1, "search": 4}, {"reward": 5}),
     ["search put into 'samples' (4 items), which no method that was called declares: annotate the argument with Out[...], or "
      "the plan does not know of it"]),
    ("aside", Flowed({"rollout": 1}, {"actor": 1}),
     ["rollout put into 'aside' (1 item), which no method that was called declares: annotate the argument with Out[...], or "
      "the plan does not know of it",
      "actor took from 'aside' (1 item), which no method that was called declares: annotate the argument with In[...], or the "
      "plan does not know of it"]),
])  # fmt: skip
def test_what_flowed_otherwise_is_said(channel, flowed, said):
    assert verify(graph_of(GRPO), FLOWED | {channel: flowed}) == said


def test_a_channel_that_was_not_looked_at_is_not_judged():
    assert verify(graph_of(GRPO), {"prompts": FLOWED["prompts"]}) == []
