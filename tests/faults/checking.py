"""The check, in a process that knows nothing of faults: a ledger holds what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from tests.crash.book import unsound
from tests.crash.processes import Crew, Voice
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    Ledger,
    RunStarted,
    TurnledgerError,
    new_run_id,
)
from turnledger.ledger.integrity.verify import every_run


def check(crew: Crew, url: str, accounts: Sequence[dict[str, Any]]) -> tuple[list[str], int]:
    """What is wrong with a ledger, and how many unknown appends were stored after all.

    Another process looks at it, and appends what was left unknown once more.
    """
    checker = crew.start("checker", _check, url, accounts)
    found, stored = crew.expect(checker, "found")
    crew.join(checker)
    return found, stored


def _check(voice: Voice, url: str, accounts: Sequence[dict[str, Any]]) -> None:
    try:
        voice.say("found", *_look(url, accounts))
    except TurnledgerError as error:
        voice.say("found", [f"lost: all of it, for it can't be used: {error!r}"], 0)


def _look(url: str, accounts: Sequence[dict[str, Any]]) -> tuple[list[str], int]:
    found: list[str] = []
    stored = 0
    with Ledger.open(url) as ledger:
        there = [str(record.event_id) for record in ledger.tail()]
        for account in accounts:
            found += broken_promises(set(there), account)
            derived = account.get("derived", {})
            if ledger.derived_data("fault.rows").get(list(derived)) != derived:
                found.append("the derived data lacks rows")
            for run, events in account.get("open_ends", ()):
                was_there = events[0][0] in there
                stored += was_there
                found += _settle(ledger, run, events, was_there=was_there)
        records = [str(record.event_id) for record in ledger.tail()]
        if len(set(records)) != len(records):
            found.append("doubled: an event is there twice")
        report = ledger.verify_all()
        found += [f"verify_all: {problem}" for problem in report.problems]
        index = list(every_run(ledger.store))
        ledger.rebuild_index()
        if index != list(every_run(ledger.store)):
            found.append("the index is not what the events make of it")
        # Whatever happened, it can be written to.
        ledger.append(new_run_id(), CustomEvent(kind="fault.after"), NEW)
    return (found + unsound(url))[:10], stored


def _settle(ledger: Ledger, run: str, events: list[list[str]], *, was_there: bool) -> list[str]:
    """Append once more what nobody knew of: recorded now, or answered with the first result."""
    drafts = []
    for event_id, text in events:
        content = msgspec.json.decode(text)
        event = CustomEvent(**content) if "kind" in content and "data" in content else RunStarted()
        drafts.append(Draft(event, UUID(event_id)))
    starts = isinstance(drafts[0].event, RunStarted)
    done = ledger.append(run, drafts, NEW if starts else ANY)
    if done.duplicate == was_there:
        return []
    return [f"settled as duplicate={done.duplicate}, though it was there: {was_there}"]


def broken_promises(there: set[str], account: dict[str, Any]) -> list[str]:
    """What was acknowledged and is not there, was denied and is, or is there in part."""
    found = [
        f"lost: {len(set(ids) - there)} of {len(ids)} that were acknowledged"
        for ids in account["acknowledged"]
        if not set(ids) <= there
    ]
    found += [
        f"stored: {len(ids)}, of which it was said that nothing was written"
        for ids in account.get("unwritten", ())
        if set(ids) & there
    ]
    found += [
        f"torn: {len(set(ids) & there)} of {len(ids)} whose outcome was unknown"
        for ids in account.get("unknown", ())
        if set(ids) & there and not set(ids) <= there
    ]
    return found
