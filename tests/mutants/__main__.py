"""`python -m tests.mutants`: break each requirement, and see that the tests named for it notice.

Exit codes: 0 all were noticed, 1 some were not, 2 the table is stale or the tests fail unchanged.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.mutants.running import failing_unchanged, run, trees
from tests.mutants.table import Mutant, problems, read_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="LINE", nargs="+", help="run these lines, S2-7 say")
    parser.add_argument("--list", action="store_true", help="list the mutants and run none")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (2)")
    given = parser.parse_args()
    lines = read_table()
    if unknown := set(given.only or ()) - set(lines):
        parser.error(f"unknown lines: {', '.join(sorted(unknown))}")
    chosen = [line for name, line in lines.items() if not given.only or name in given.only]
    mutants = [mutant for line in chosen for mutant in line.mutants]
    if given.list:
        for mutant in mutants:
            print(f"{mutant.name}  {mutant.file}  {mutant.text.strip()!r:.60}")
        return 0
    if wrong := problems(lines):
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    return _run(mutants, len(chosen), given.workers)


def _run(mutants: list[Mutant], lines: int, workers: int) -> int:
    began = time.monotonic()
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    done = 0

    def tell(mutant: Mutant, wrong: str) -> None:
        nonlocal done
        done += 1
        shown = f"{mutant.name}: {wrong}" if wrong else mutant.name
        if sys.stderr.isatty() and not wrong:
            print(f"\r\033[K{done} of {len(mutants)}: {shown}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{done} of {len(mutants)}: {shown}", file=sys.stderr, flush=True)

    with trees(workers) as copies:
        print(f"{len(tests)} tests without a change", file=sys.stderr, flush=True)
        if failing := failing_unchanged(copies, workers, tests):
            print("These fail without any change:", *failing, sep="\n", file=sys.stderr)
            return 2
        found = run(copies, workers, mutants, tell)
    survivors = {name: wrong for name, wrong in found.items() if wrong}
    minutes = (time.monotonic() - began) / 60
    print(
        f"\n{lines} lines, {len(mutants)} mutants, {len(mutants) - len(survivors)} noticed by all "
        f"of their {len(tests)} tests, in {minutes:.1f} minutes"
    )
    for name, wrong in survivors.items():
        print(f"{name}: {wrong}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
