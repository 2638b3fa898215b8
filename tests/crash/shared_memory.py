"""Numbers that a driver's children share, and a start line at which they wait for each other."""

from __future__ import annotations

import mmap
import os


class Numbers:
    """One number for each child; made before the fork."""

    def __init__(self, children: int) -> None:
        self._values = memoryview(mmap.mmap(-1, 8 * children)).cast("q")

    def __getitem__(self, child: int) -> int:
        return self._values[child]

    def __setitem__(self, child: int, value: int) -> None:
        self._values[child] = value

    def all(self) -> list[int]:
        return self._values.tolist()


class StartLine:
    """All children leave it at the same moment: waiting in a pipe would line them up."""

    def __init__(self, children: int) -> None:
        self._arrived = Numbers(children)

    def wait(self, child: int) -> None:
        self._arrived[child] += 1
        mine = self._arrived[child]
        while min(self._arrived.all()) < mine:
            os.sched_yield()
