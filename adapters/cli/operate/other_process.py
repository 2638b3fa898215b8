"""Replays a run in a child process with other hashes: shows the order of a set, and randomness.

What the user's code makes is compared with what it makes in this process. Text of the same
characters in another order is the order of a set, if the same hashes give it again; any other
difference is time or randomness.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from turnledger.adapters.cli.shared.user_code import load_loop
from turnledger.ledger import Ledger, Redactor
from turnledger.ledger.redaction import STANDARD

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime import Divergence
    from turnledger.runtime.replaying.divergence import Cause

# Seconds for a child: it imports the user's code, and replays up to the divergence.
PATIENCE = 120.0
# How many other hashes are tried where the difference looks like the order of a set: a set of
# two items has the same order in half of all processes.
_TRIES = 3
_SEED = "PYTHONHASHSEED"


@dataclass(frozen=True)
class OtherProcess:
    """A replay that a child process can repeat.

    Attributes:
        db: The ledger's URL or path.
        rules: The redactor's file; "" is the standard one, None means no redactor.
        run: The run.
        app: The loop's factory, as `module:name`.
        until: The last version to follow.
    """

    db: str
    rules: str | None
    run: UUID
    app: str
    until: int | None

    def explain(self, divergence: Divergence) -> Divergence:
        """The divergence, by its cause if another process shows that."""
        from turnledger.runtime.replaying.divergence import MAY_DIFFER_BY_PROCESS
        from turnledger.runtime.replaying.divergence_cause import REORDERED

        if divergence.cause not in MAY_DIFFER_BY_PROCESS:
            return divergence
        mine = _made(divergence)
        looks_so = divergence.hint == REORDERED or divergence.cause == "tool order changed"
        tries = _TRIES if looks_so else 1
        for seed in islice(_other_seeds(), tries):
            other = self._made_with(seed)
            if other is None:
                break  # it could not be seen
            if other != mine:
                is_set = _are_reordered(mine, other) and self._made_with(seed) == other
                cause, detail = _A_SET if is_set else _NOT_A_SET
                return replace(divergence, cause=cause, detail=detail, hint="")
        return divergence

    def _made_with(self, seed: str) -> Any:
        """What the code makes in a process with these hashes; None if that can't be told."""
        asked = {
            "db": self.db,
            "rules": self.rules,
            "run": str(self.run),
            "app": self.app,
            "until": self.until,
            "path": sys.path,
        }
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            # Through a pipe: a ledger's URL may have a password in it.
            done = subprocess.run(  # noqa: S603 - this program, in another process
                [sys.executable, "-m", __name__],
                input=json.dumps(asked).encode(),
                env={**os.environ, _SEED: seed},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE,
                check=True,
            )
            return json.loads(done.stdout)
        return None


_A_SET: tuple[Cause, str] = (
    "order of a set used",
    "seen: a process with other hashes makes it in another order",
)
_NOT_A_SET: tuple[Cause, str] = (
    "time or randomness used",
    "seen: another process, with other hashes, makes something else",
)


def _other_seeds() -> Iterator[str]:
    own = os.environ.get(_SEED)
    return (str(seed) for seed in range(1, sys.maxsize) if str(seed) != own)


def _made(divergence: Divergence | None) -> dict[str, Any]:
    """What the code made where it diverged, as JSON data without times."""
    if divergence is None:
        return {"version": None}
    found = divergence.found
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if name != "created_at"}
    return {"version": divergence.version, "made": divergence.made, "found": found}


def _are_reordered(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two have the same characters; as recorded is the record's own order of them."""
    return "made" not in other or sorted(one["made"]) == sorted(other["made"])


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    """In the child: replay the run, and say what the code made."""
    from turnledger.runtime import replay

    sys.path[:] = asked["path"]
    rules = asked["rules"]
    redactor = Redactor.read(rules) if rules else STANDARD if rules == "" else None
    with (
        Ledger.open(asked["db"], create=False, redactor=redactor) as ledger,
        Ledger.open("memory://") as nowhere,
    ):
        loop = load_loop(asked["app"], nowhere)
        found = replay(ledger, asked["run"], loop=loop, until=asked["until"], verify=False)
    return _made(found.divergence)


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # what the user's code prints is not the answer
        answer = _answer(json.load(sys.stdin))
    print(json.dumps(answer))
