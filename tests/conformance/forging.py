"""What a forger does who can write to the store and knows how digests are made."""

from __future__ import annotations

import json
from uuid import UUID

from tests.conformance.harness import Vandal
from turnledger.ledger import ANY, NEW, CustomEvent, Ledger, RunStarted, new_run_id
from turnledger.ledger.events.chain import GENESIS, link


def small_book(ledger: Ledger) -> dict[str, UUID]:
    """Two runs, a fork of the first and a fork of that at a version before it."""
    first, other = new_run_id(), new_run_id()
    ledger.append(first, RunStarted(tags={"city": "Évora"}), NEW)
    for cents in (1, 20, 300):
        ledger.append(first, paid(cents), ANY)
    ledger.append(other, [RunStarted(), paid(4000)], NEW)
    fork = ledger.fork(first, 3)
    ledger.append(fork, paid(50000), ANY)
    nested = ledger.fork(fork, 2)
    ledger.append(nested, paid(600000), ANY)
    return {"first": first, "other": other, "fork": fork, "nested": nested}


def paid(cents: int) -> CustomEvent:
    # The text is one that a careless reader of an export would cut in the wrong place.
    return CustomEvent(kind="acme.paid", data={"cents": cents, "note": 'é ,"data":{}'})


def cut(vandal: Vandal, run: UUID, end: int) -> None:
    """Remove a run's records after a version, and its row in the index, which would show it."""
    for row in vandal.rows():
        if row.run_id == str(run).encode() and row.version > end:
            vandal.delete(row.position)
    vandal.delete_run(run)


def remove(vandal: Vandal, run: UUID) -> None:
    """Remove a run together with its row in the index."""
    cut(vandal, run, 0)


def rewrite(vandal: Vandal, old: bytes, new: bytes) -> None:
    """Replace a text in every record, and compute all digests of the ledger anew."""
    digests: dict[tuple[bytes, int], bytes] = {}
    parents: dict[bytes, bytes] = {}
    for position, run, version, tag, event_id, moment, _, data in vandal.rows():
        before = (run, version - 1)
        started = json.loads(data) if tag == b"run.started" else {}
        if started.get("parent"):
            parents[run] = started["parent"].encode()
            while before not in digests:
                before = (parents[before[0]], version - 1)
        data = data.replace(old, new)
        digest = link(digests.get(before, GENESIS), run, version, event_id, tag, moment, data)
        digests[run, version] = digest
        vandal.change(position, "data", data)
        vandal.change(position, "digest", digest)
