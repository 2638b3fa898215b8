"""`python -m tests.fuzz TARGET ROUND [NUMBER]`: a round again, or one input of it."""

from __future__ import annotations

import argparse
import mmap
import sys
from pathlib import Path

import msgspec

from tests.fuzz.broken_targets import BROKEN
from tests.fuzz.byte_changes import ByteChanges
from tests.fuzz.catalogue import TARGETS
from tests.fuzz.running import bound_memory, fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    known = TARGETS | BROKEN | {ByteChanges.name: ByteChanges}
    parser.add_argument("target", choices=sorted(known))
    parser.add_argument("round", type=int)
    parser.add_argument("number", type=int, nargs="?", help="only this input, which is shown")
    parser.add_argument("--inputs", type=int, help="how many; by default a whole round")
    parser.add_argument("--noted", type=Path, help="where to note which input is being tried")
    given = parser.parse_args()
    target = known[given.target]()
    if given.number is not None:
        with target.prepared():
            print(target.shown(target.drawn(given.round, given.number)))
        report = fuzz(target, given.round, range(given.number, given.number + 1))
        print("\n\n".join(report.problems) or f"{report.accepted} accepted, no problem")
        return 1 if report.problems else 0
    bound_memory()
    numbers = range(given.inputs or target.inputs)
    if given.noted is None:
        report = fuzz(target, given.round, numbers)
    else:
        with given.noted.open("r+b") as file, mmap.mmap(file.fileno(), 8) as place:
            report = fuzz(target, given.round, numbers, place)
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
