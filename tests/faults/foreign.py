"""Scenario: a user who may read a ledger's folder, and not write there.

As root the reader becomes nobody; any other user takes the right to write from themselves.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.crash.processes import Crew, Voice
from turnledger.ledger import ANY, NEW, CustomEvent, Ledger, StoreUnavailableError, new_run_id

NOBODY = 65534
RUN = new_run_id()


def run(crew: Crew) -> dict[str, Any]:
    """What the reader saw: [events, verified], of a ledger that is closed, and that is open."""
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        url = folder / "runs.db"
        # Others may read it: that is not the default.
        owner = crew.start("owner", _own, f"sqlite:///{url}?private=off")
        crew.expect(owner, "closed")
        ending.callback(folder.chmod, 0o755)
        _forbid(folder)
        before = sorted(path.name for path in folder.iterdir())
        reader = crew.start("reader", _read, str(url))
        closed = crew.expect(reader, "read")
        left = sorted(path.name for path in folder.iterdir())
        folder.chmod(0o755)
        owner.order("o")
        crew.expect(owner, "opened")
        _forbid(folder)
        reader.order("r")
        opened = crew.expect(reader, "read")
        owner.order("a")
        crew.expect(owner, "appended")
        reader.order("r")
        (followed, _, _) = crew.expect(reader, "read")
        crew.join(reader)
        folder.chmod(0o755)
        crew.kill(owner)
    return {
        "closed": closed[:2],
        "open": opened[:2],
        "followed": followed,
        "errors": [closed[2], opened[2]],
        "left behind": [name for name in left if name not in before],
    }


def _forbid(folder: Path) -> None:
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)


def _own(voice: Voice, url: str) -> None:
    fact = CustomEvent(kind="fault.fact")
    with Ledger.open(url) as ledger:
        ledger.append(RUN, [fact, fact, fact], NEW)
    voice.say("closed")
    voice.hear()
    for path in Path(url).parent.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with Ledger.open(url) as ledger:
        ledger.append(RUN, fact, ANY)
        voice.say("opened")
        voice.hear()
        ledger.append(RUN, fact, ANY)
        voice.say("appended")
        voice.hear()


def _read(voice: Voice, url: str) -> None:
    # All modules are imported with it: the user `nobody` may not read every interpreter's files.
    with tempfile.TemporaryDirectory() as own, Ledger.open(Path(own) / "own.db") as ledger:
        ledger.append(RUN, CustomEvent(kind="fault.fact"), ANY)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    for turn in range(3):
        if turn:
            voice.hear()
        with Ledger.open(url) as ledger:
            try:
                ledger.append(RUN, CustomEvent(kind="fault.fact"), ANY)
            except StoreUnavailableError as error:
                said = str(error)
            voice.say("read", len(list(ledger.tail())), ledger.verify_all().ok, said)
