"""Each way in which a plugin can be broken: told on that plugin, with its distribution; the others work."""

from __future__ import annotations

import pytest

from rlinf_cli import __version__
from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.plugins.loader import load_plugins

BROKEN = {
    "module missing": ("", {}, "No module named 'broken_hooks'"),
    "import of a missing package": ("import numpi", {}, "No module named 'numpi'"),
    "raises at import": ("1 / 0", {}, "ZeroDivisionError: division by zero"),
    "syntax error": ("def register_rewards(:", {}, "SyntaxError: invalid syntax (broken_hooks.py, line 1)"),
    "exits at import": ("import sys; sys.exit(3)", {}, "sys.exit(3) was called"),
    "panics at import": ("class Panic(BaseException): pass\nraise Panic('native')", {}, "Panic: native"),
    "misspelled hook": (
        "from rlinf_cli.api import hookimpl\n@hookimpl\ndef register_reward(): return []",
        {},
        f"register_reward is no hook of rlinf-cli {__version__}. Did you mean 'register_rewards'?",
    ),
    "hook of a newer version": (
        "from rlinf_cli.api import hookimpl\n@hookimpl\ndef on_full_moon(): return []",
        {},
        f"on_full_moon is no hook of rlinf-cli {__version__}. It may be written for a newer version",
    ),
    "unmarked hook": (
        "def register_rewards(): return []",
        {},
        "register_rewards is not marked as a hook: put @hookimpl (from rlinf_cli.api) above it",
    ),
    "argument of a newer version": (
        "from rlinf_cli.api import hookimpl\n@hookimpl\ndef register_rewards(context): return []",
        {},
        f"register_rewards takes 'context', which rlinf-cli {__version__} does not give: is it for a newer version?",
    ),
    "hook raises": (
        "from rlinf_cli.api import hookimpl\n@hookimpl\ndef register_rewards(): raise KeyError('home')",
        {},
        "register_rewards: KeyError: 'home'",
    ),
    "hook exits": (
        "from rlinf_cli.api import hookimpl\n@hookimpl\ndef register_rewards(): raise SystemExit('no licence')",
        {},
        "register_rewards: sys.exit('no licence') was called",
    ),
    "returns nothing": (
        "from rlinf_cli.api import hookimpl\n@hookimpl\ndef register_rewards(): pass",
        {},
        "register_rewards: returned None, not a list of Extension",
    ),
    "returns one extension": (
        "from rlinf_cli.api import Extension, hookimpl\n"
        "@hookimpl\ndef register_rewards(): return Extension('a', target='m:A')",
        {},
        "register_rewards: returned an object of type Extension, not a list of Extension",
    ),
    "yields": (
        "from rlinf_cli.api import Extension, hookimpl\n"
        "@hookimpl\ndef register_rewards(): yield Extension('a', target='m:A')",
        {},
        "register_rewards: returned an object of type generator, not a list of Extension",
    ),
    "returns names": (
        "from rlinf_cli.api import Extension, hookimpl\n"
        "@hookimpl\ndef register_rewards(): return [Extension('a', target='m:A'), 'b']",
        {},
        "register_rewards: returned an object of type str at position 1 of its list, not an Extension",
    ),
    "one name twice": (
        "from rlinf_cli.api import Extension, hookimpl\n"
        "@hookimpl\ndef register_rewards(): return [Extension('a', target='m:A'), Extension('a', target='m:B')]",
        {},
        "register_rewards: registers 'a' twice",
    ),
    "one name twice in two functions": (
        "from rlinf_cli.api import Extension, hookimpl\n"
        "@hookimpl\ndef register_rewards(): return [Extension('a', target='m:A')]\n"
        "@hookimpl(specname='register_rewards')\ndef second(): return [Extension('a', target='m:B')]",
        {},
        "register_rewards: registers 'a' twice",
    ),
    "extension without a module": (
        "from rlinf_cli.api import Extension, hookimpl\n"
        "@hookimpl\ndef register_rewards(): return [Extension('a', target='A')]",
        {},
        "register_rewards: ValueError: Extension 'a': target 'A' is not 'module:attribute'",
    ),
    "missing attribute": (
        "",
        {"entry": "broken_hooks:plugin", "write": True},
        "AttributeError: module 'broken_hooks' has no attribute 'plugin'",
    ),
    "not the name of a module": ("", {"entry": "broken-hooks"}, "No module named 'broken-hooks'"),
}


@pytest.fixture(params=BROKEN, ids=lambda row: row.replace(" ", "-"))
def broken(request, site):
    """A healthy plugin and a broken one; returns the problem that must be told."""
    source, settings, problem = BROKEN[request.param]
    modules = {"broken_hooks": source} if source or settings.get("write") else {}
    site.add("rlinf-broken", {"broken": settings.get("entry", "broken_hooks")}, version="0.3.1", **modules)
    site.add_reward("rlinf-fine", "fine", "polite")
    return problem


def test_a_broken_plugin_is_told_and_the_rest_works(broken):
    found = load_plugins(["broken", "fine"])
    info = found.info("broken")
    assert (info.state, info.problem) == ("failed", broken)
    assert (info.distribution, info.version) == ("rlinf-broken", "0.3.1")
    assert found.info("fine").state == "ok"
    assert found.names("reward") == ["polite"]
    assert found.get("reward", "polite").name == "polite"


def test_asking_for_what_a_broken_plugin_is_named_after_is_a_plugin_error(broken):
    with pytest.raises(PluginError) as caught:
        load_plugins(["broken", "fine"]).get("reward", "broken")
    assert broken in str(caught.value)
    assert "'broken' (rlinf-broken 0.3.1)" in str(caught.value)
    assert str(caught.value).endswith(("(rlinf plugins info broken)", "(rlinf plugins info broken --traceback)"))
    assert caught.value.exit_code == 3


def test_the_traceback_shows_where_the_plugin_raised(site):
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks="def deep():\n    1 / 0\ndeep()")
    traceback = load_plugins(["broken"]).info("broken").traceback
    assert 'broken_hooks.py", line 2, in deep' in traceback
    assert traceback.endswith("ZeroDivisionError: division by zero\n")


def test_a_wrong_return_value_has_no_traceback_because_nothing_raised(site):
    source = "from rlinf_cli.api import hookimpl\n@hookimpl\ndef register_rewards(): pass"
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks=source)
    assert load_plugins(["broken"]).info("broken").traceback == ""


def test_ctrl_c_while_a_plugin_loads_is_not_its_failure(site):
    site.add("rlinf-slow", {"slow": "slow_hooks"}, slow_hooks="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugins(["slow"])


def test_every_problem_of_a_plugin_is_told_at_once(site):
    source = """
        from rlinf_cli.api import hookimpl

        @hookimpl
        def register_reward(): return []

        @hookimpl
        def register_engines(): return None

        def register_models(): return []
    """
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks=source)
    problem = load_plugins(["broken"]).info("broken").problem
    assert problem.count("; ") == 2
    for hook in ("register_reward is no hook", "register_engines: returned None", "register_models is not marked"):
        assert hook in problem


def test_what_a_failed_plugin_registered_before_is_refused_by_name(site):
    source = """
        from rlinf_cli.api import Extension, hookimpl

        @hookimpl
        def register_rewards(): return [Extension("kind", target="m:A")]

        @hookimpl
        def register_reward(): return []
    """
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks=source)
    found = load_plugins(["broken"])
    assert found.names("reward") == []
    with pytest.raises(PluginError, match=r"reward 'kind' is not available: plugin 'broken' .* Did you mean"):
        found.get("reward", "kind")


def test_a_failed_plugin_does_not_take_a_name_from_a_healthy_one(site):
    source = """
        from rlinf_cli.api import Extension, hookimpl

        @hookimpl
        def register_rewards(): return [Extension("polite", target="m:A")]

        @hookimpl
        def register_reward(): return []
    """
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks=source)
    site.add_reward("rlinf-fine", "fine", "polite")
    found = load_plugins(["broken", "fine"])
    assert found.info("fine").state == "ok"
    assert found.get("reward", "polite").target == "hooks_of_rlinf_fine:nothing"


def test_two_distributions_with_one_plugin_name_are_both_refused_and_named(site):
    site.add_reward("rlinf-one", "polite", "please", version="1.0")
    site.add_reward("rlinf-two", "polite", "thanks", version="2.0")
    site.add_reward("rlinf-fine", "fine", "kind")
    found = load_plugins(["polite", "fine"])
    refused = [info for info in found.plugins if info.name == "polite"]
    assert [(info.distribution, info.state) for info in refused] == [("rlinf-one", "failed"), ("rlinf-two", "failed")]
    for info in refused:
        assert "'polite' of rlinf-one 1.0 (hooks_of_rlinf_one)" in info.problem
        assert "'polite' of rlinf-two 2.0 (hooks_of_rlinf_two)" in info.problem
    assert found.names("reward") == ["kind"]


def test_a_refused_plugin_is_not_even_imported(site):
    site.add("rlinf-one", {"same": "one_hooks"}, one_hooks="raise SystemError")
    site.add("rlinf-two", {"same": "two_hooks"}, two_hooks="raise SystemError")
    assert all(info.traceback == "" for info in load_plugins(["same"]).plugins)


def test_two_plugins_registering_one_name_are_both_refused_for_that_name_only(site):
    site.add_reward("rlinf-one", "one", "polite", "please", version="1.0")
    site.add_reward("rlinf-two", "two", "polite", "thanks", version="2.0")
    found = load_plugins(["one", "two"])
    assert found.names("reward") == ["please", "thanks"]
    assert found.get("reward", "please").name == "please"
    for info in found.plugins:
        assert info.state == "conflict"
        assert "reward polite: registered by 'one' (rlinf-one 1.0) and 'two' (rlinf-two 2.0)" in info.problem
    with pytest.raises(PluginError) as caught:
        found.get("reward", "polite")
    assert "rlinf-one 1.0" in str(caught.value)
    assert "rlinf-two 2.0" in str(caught.value)
    assert "RLINF_PLUGINS" in str(caught.value)


def test_one_name_for_two_kinds_is_no_conflict(site):
    source = """
        from rlinf_cli.api import Extension, hookimpl

        @hookimpl
        def register_engines(): return [Extension("polite", target="m:A")]
    """
    site.add("rlinf-engine", {"engine": "engine_hooks"}, engine_hooks=source)
    site.add_reward("rlinf-fine", "fine", "polite")
    found = load_plugins(["engine", "fine"])
    assert [info.state for info in found.plugins] == ["ok", "ok"]
    assert found.get("engine", "polite").target == "m:A"


def test_a_missing_requirement_is_told_with_the_extra_that_brings_it(site):
    site.add_reward("rlinf-sim", "sim", "lift", requires=("no-such-simulator",), extra="sim")
    found = load_plugins(["sim"])
    info = found.info("sim")
    assert (info.state, info.problem) == ("needs", "pip install 'rlinf-sim[sim]'")
    assert found.names("reward") == ["lift"]
    with pytest.raises(PluginError) as caught:
        found.get("reward", "lift")
    assert str(caught.value) == (
        "reward 'lift' of plugin 'sim' (rlinf-sim 1.0) needs no-such-simulator, not installed here; "
        "run: pip install 'rlinf-sim[sim]'"
    )


def test_without_an_extra_only_the_missing_requirements_are_named(site):
    site.metadata("my-simulator", "Metadata-Version: 2.1\nName: my-simulator\nVersion: 1.0\n")
    site.add_reward("rlinf-sim", "sim", "lift", requires=("My_Simulator", "no-such-one", "no-such-two"))
    assert load_plugins(["sim"]).info("sim").problem == "pip install no-such-one no-such-two"


def test_a_requirement_that_is_installed_is_not_imported(site):
    site.add("my-simulator", {}, my_simulator="raise RuntimeError('imported')")
    site.add_reward("rlinf-sim", "sim", "lift", requires=("my-simulator",))
    found = load_plugins(["sim"])
    assert found.info("sim").state == "ok"
    assert found.get("reward", "lift").requires == ("my-simulator",)


def test_a_malformed_entry_points_file_stops_nobody_else(site):
    site.add("rlinf-malformed", "[rlinf]\nno equals sign here\n", version="0.2")
    site.add_reward("rlinf-fine", "fine", "polite")
    found = load_plugins()
    assert found.get("reward", "polite")
    info = found.info("rlinf-malformed")
    assert (info.state, info.distribution, info.version) == ("failed", "rlinf-malformed", "0.2")
    assert info.problem.startswith("its entry_points.txt is malformed")


def test_a_distribution_without_metadata_stops_nobody_else(site):
    site.add("rlinf-torn", {"torn": "torn_hooks"})
    (site.folder / "rlinf_torn-1.0.dist-info" / "METADATA").unlink()
    site.add_reward("rlinf-fine", "fine", "polite")
    found = load_plugins()
    assert found.get("reward", "polite")
    assert str(site.folder) in found.info("(unreadable)").problem


def test_an_unknown_name_is_a_usage_error_with_the_nearest_and_all_names(site):
    site.add_reward("rlinf-fine", "fine", "polite", "kind")
    with pytest.raises(UsageError) as caught:
        load_plugins(["fine"]).get("reward", "polit")
    assert str(caught.value).startswith("unknown reward 'polit'. Did you mean 'polite'? Available: kind, polite.")
    assert caught.value.exit_code == 2


def test_an_unknown_name_reminds_of_failed_plugins_and_of_those_left_out(site):
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks="import numpi")
    site.add_reward("rlinf-fine", "fine", "polite")
    with pytest.raises(UsageError) as caught:
        load_plugins(["broken"]).get("reward", "polite")
    assert "Available: none. Plugins that failed: broken. Left out by RLINF_PLUGINS" in str(caught.value)
    assert "fine" in str(caught.value)
