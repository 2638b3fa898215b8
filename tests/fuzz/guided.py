"""Fuzzing that goes by coverage (atheris): what reached new code is kept, and changed further.

`python -m tests.fuzz.guided TARGET FILE...` tries inputs that were found before. A target is the
same as when inputs are drawn: only its dice fall as the fuzzer's bytes say.
"""

from __future__ import annotations

import argparse
import mmap
import random
import sys
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what is imported before it is instrumented is not guided by
    from tests.fuzz.targets import Target

PACKAGES = ["turnledger"]
# Two counters that the process leaves where they can be read, however it ends.
COUNTED = 16


class GivenDice(random.Random):
    """Throws that are bytes of the fuzzer's, and follow from these when they are used up."""

    def __init__(self, given: bytes) -> None:
        self._given = given
        self._used = 0
        super().__init__(sha256(given).digest())

    def getrandbits(self, k: int) -> int:
        size = (k + 7) // 8
        if self._used + size > len(self._given):
            return super().getrandbits(k)
        thrown = self._given[self._used : self._used + size]
        self._used += size
        return int.from_bytes(thrown, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(16) / (1 << 16)


def _attempt(target: Target, counted: mmap.mmap | None) -> Callable[[bytes], None]:
    accepted = refused = 0

    def attempt(given: bytes) -> None:
        nonlocal accepted, refused
        try:
            is_accepted = target.checked(target.draw(GivenDice(given)))
        except Exception:
            traceback.print_exc()  # with its cause, which the fuzzer leaves out
            raise
        if is_accepted:
            accepted += 1
        else:
            refused += 1
        if counted is not None:
            counted[:COUNTED] = accepted.to_bytes(8, "big") + refused.to_bytes(8, "big")

    return attempt


def main() -> None:
    """Never returns: the fuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--counted", type=Path, help="where to count inputs")
    known, for_the_fuzzer = parser.parse_known_args()
    import atheris

    with atheris.instrument_imports(include=PACKAGES):
        from tests.fuzz.broken_targets import BROKEN
        from tests.fuzz.catalogue import TARGETS
        from tests.fuzz.running import bound_memory
    target: Any = (TARGETS | BROKEN)[known.target]()
    bound_memory()
    with target.prepared():
        place = None
        if known.counted is not None:
            with known.counted.open("r+b") as file:
                place = mmap.mmap(file.fileno(), COUNTED)
        atheris.Setup([sys.argv[0], *for_the_fuzzer], _attempt(target, place))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
