"""Built-in agents, and the tools that need nothing else."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_agents() -> list[Extension]:
    return [
        Extension("tags", target="rlinf_agents.tags:TagsAgent", config="rlinf_agents.config:TagsConfig",
                  summary="calls tools by tags in its text, <search>...</search>, as Search-R1 does"),
        Extension("functions", target="rlinf_agents.functions:FunctionsAgent", config="rlinf_agents.config:FunctionsConfig",
                  summary="calls tools by the functions of the model's chat template, several at once"),
    ]


@hookimpl
def register_tools() -> list[Extension]:
    return [
        Extension("calculator", target="rlinf_agents.calculator:Calculator", config="rlinf_agents.config:CalculatorConfig",
                  summary="works out arithmetic, exactly"),
        Extension("python", target="rlinf_agents.python:PythonTool", config="rlinf_agents.config:PythonConfig",
                  summary="runs programs, each in a process of its own with limits"),
    ]
