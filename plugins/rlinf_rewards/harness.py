"""Runs a program and then its tests: this text itself is what is run, see `rlinf_rewards.code`.

It is told `word`, `program` and `tests` as JSON, and prints `WORD PLACE` for each test that passes. The program does not
know the word, so that it cannot end with success before its tests have run.
"""

import json
import os
import sys


def main() -> None:
    order = json.load(sys.stdin)
    word, told = order.pop("word"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    names = {"__name__": "solution"}
    exec(compile(order["program"], "solution.py", "exec"), names)
    for place, test in enumerate(order["tests"]):
        try:
            exec(compile(test, "test.py", "exec"), dict(names))
        except BaseException:  # an AssertionError, most likely; a SystemExit is no success either
            continue
        os.write(told, f"{word} {place}\n".encode())


if __name__ == "__main__":
    main()
