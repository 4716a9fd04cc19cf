"""Configuration keys of ManiSkill."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key


@dataclass(frozen=True)
class ManiSkillConfig:
    """Keys of `env.name=maniskill`."""

    task: str = "PushCube-v1"
    """A task of ManiSkill, as it is called there."""
    control: str = ""
    """What an action is: a controller of the robot, such as `pd_joint_delta_pos` or `pd_ee_delta_pose`; empty: its first."""
    reward: str = key("normalized_dense", choices=("normalized_dense", "dense", "sparse"))
    """`normalized_dense`: shaped, 1 at most; `dense`: shaped, in the task's own scale; `sparse`: 1 where it succeeds."""
    observation: str = key("state", choices=("state", "images"))
    """`state`: robot, objects and goals as numbers, which needs no renderer; `images`: the task's cameras, and of the numbers
    those only that a real robot would know."""
    image_size: int = key(128, ge=8)
    """Pixels of a side of a camera's image."""
    max_steps: int = key(0, ge=0)
    """Steps after which an episode is cut; 0: as many as the task has there, 50 where it names none."""
    on_success: str = key("continue", choices=("continue", "terminate", "truncate"))
    """What success does to an episode: it goes on, it ends (nothing comes after it), or it is cut (what would have come is
    estimated)."""
