"""ManiSkill's tasks: manipulation and control, many scenes at once on a GPU, one an instance on cores."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_environments() -> list[Extension]:
    return [Extension("maniskill", target="rlinf_maniskill.environment:ManiSkill",
                      config="rlinf_maniskill.config:ManiSkillConfig",
                      summary="ManiSkill 3 tasks such as PushCube-v1; observations of states need no renderer",
                      requires=("mani-skill",), extra="maniskill")]
