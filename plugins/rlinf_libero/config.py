"""Configuration keys of LIBERO."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key

SUITES = ("spatial", "object", "goal", "10", "90")


@dataclass(frozen=True)
class LiberoConfig:
    """Keys of `env.name=libero`."""

    task: str = key("object", pattern=rf"({'|'.join(SUITES)})(/[0-9]+(,[0-9]+)*)?",
                    form=f"one of {', '.join(SUITES)}, which may be followed by numbers of tasks: object/0,3")
    """A suite, and which of its tasks: `object` is all ten, `object/0` the first. Tasks of `spatial`, `object` and `goal` differ
    in that, those of `10` are long, `90` are many."""
    observation: str = key("state", choices=("state", "images"))
    """`state`: robot, objects and goals as numbers, which needs no renderer; `images`: two cameras, and the numbers of the robot
    alone."""
    image_size: int = key(128, ge=8)
    """Pixels of a side of a camera's image."""
    max_steps: int = key(300, ge=1)
    """Steps after which an episode is cut. The long tasks of suite `10` need 520."""
    settle_steps: int = key(10, ge=0)
    """Steps without an action before an episode begins, in which objects come to rest."""
