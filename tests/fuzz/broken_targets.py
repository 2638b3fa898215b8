"""Targets that break every promise at input 7: the watch over a round must notice each."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

from tests.fuzz.running import MORE_MEMORY
from tests.fuzz.targets import Target


def _grow() -> bytes:
    return bytes(2 * MORE_MEMORY)


def _target(called: str, at_seven: Callable[[], object]) -> type[Target]:
    class Broken(Target):
        name = called
        inputs, few, goal = 10, 10, 0

        def __init__(self) -> None:
            self._drawn = -1

        def draw(self, dice: random.Random) -> int:
            self._drawn += 1
            return self._drawn

        def check(self, given: int) -> bool:
            if given == 7:
                at_seven()
            return True

    return Broken


BROKEN: dict[str, type[Target]] = {
    "dies": _target("dies", os.abort),
    "grows": _target("grows", _grow),
    "hangs": _target("hangs", lambda: time.sleep(1000)),
    "raises": _target("raises", lambda: os.environ["NO SUCH KEY"]),
}
