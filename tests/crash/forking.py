"""Scenario: a process forks while it has a ledger open, and its child opens the same ledger."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

from tests.crash.processes import Crew, Voice
from turnledger.ledger import ANY, CustomEvent, Ledger, StoreUnavailableError

RUN = "00000000-0000-4000-8000-000000000003"
NOTE = CustomEvent(kind="crash.note", data="x" * 2000)
ROUNDS = 20


def run(crew: Crew, *, url: str, parent: str) -> dict[str, Any]:
    scene = {"closes": _close, "goes on": _go_on, "is reading": _read}
    return scene[parent](crew, url)


def _close(crew: Crew, url: str) -> dict[str, Any]:
    """The parent takes itself for the last one to close, and the child writes on."""
    with Ledger.open(url) as ledger:
        ledger.append(RUN, NOTE, ANY)
        child = crew.start("child", _append, url)
        crew.expect(child, "appended")
    child.order("g")
    [acknowledged] = crew.expect(child, "acknowledged")
    crew.kill(child)
    return _found(url, acknowledged)


def _go_on(crew: Crew, url: str) -> dict[str, Any]:
    """Both write, in turns, and neither takes the other's WAL away."""
    with Ledger.open(url) as ledger:
        ledger.append(RUN, NOTE, ANY)
        child = crew.start("child", _append, url)
        crew.expect(child, "appended")
        child.order("g")
        for _ in range(ROUNDS):
            ledger.append(RUN, NOTE, ANY)
        crew.expect(child, "acknowledged")
        crew.kill(child)
        acknowledged = ledger.head(RUN)
    return _found(url, acknowledged)


def _read(crew: Crew, url: str) -> dict[str, Any]:
    """Another thread is in the middle of a read at the fork: the child is told."""
    under_way, go_on = Event(), Event()
    with Ledger.open(url) as ledger:
        ledger.append(RUN, NOTE, ANY)

        def read() -> None:
            rows = ledger.store.raw_rows(RUN.encode())
            next(rows)
            under_way.set()
            go_on.wait()
            list(rows)

        # And so is the thread that forks: what it had opened, the child must not close.
        own: Iterator[object] = ledger.store.raw_rows(RUN.encode())
        next(own)
        thread = Thread(target=read)
        thread.start()
        under_way.wait()
        child = crew.start("child", _be_refused, url, own)
        [refusal] = crew.expect(child, "refused")
        crew.join(child)
        go_on.set()
        thread.join()
        for _ in range(ROUNDS):
            ledger.append(RUN, NOTE, ANY)
        acknowledged = ledger.head(RUN)
    return {**_found(url, acknowledged), "refusal": refusal}


def _append(voice: Voice, url: str) -> None:
    ledger = Ledger.open(url)
    ledger.append(RUN, NOTE, ANY)
    voice.say("appended")
    voice.hear()
    for _ in range(ROUNDS):
        acknowledged = ledger.append(RUN, NOTE, ANY)
    voice.say("acknowledged", acknowledged.version)
    voice.hear()


def _be_refused(voice: Voice, url: str, rows: Iterator[object]) -> None:
    del rows
    try:
        Ledger.open(url)
    except StoreUnavailableError as error:
        voice.say("refused", str(error))


def _found(url: str, acknowledged: int) -> dict[str, Any]:
    with Ledger.open(url) as ledger:
        found, verified = ledger.head(RUN), ledger.verify_all().ok
    return {"acknowledged": acknowledged, "found": found, "verified": verified}
