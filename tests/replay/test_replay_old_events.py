"""Runs that an older program recorded: their events are read as today's, and run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crash.agents import KINDS, Agent, Order
from turnledger.ledger import CustomEvent, Ledger, MessageAppended, Record, new_run_id
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
from turnledger.runtime import Reply, replay


def _as_once(record: Record) -> tuple[str, bytes]:
    """The record as the first program would have written it: messages flat, arguments an object."""
    if not isinstance(record.event, MessageAppended):
        return record.tag, record.data.encode()
    flat: dict[str, Any] = msgspec.json.decode(record.data)["message"]
    for call in flat.get("tool_calls", ()):
        call["arguments"] = msgspec.json.decode(call["arguments"])
    return "message.recorded", msgspec.json.encode(flat)


class Compact(Agent):
    """Its model writes arguments as the upcaster does: the old events do not say how it wrote."""

    def _reply(self, request: Any) -> Reply:
        reply = super()._reply(request)
        calls = (replace(call, arguments=_compact(call.arguments)) for call in reply.tool_calls)
        return replace(reply, tool_calls=tuple(calls))


def _compact(text: str) -> str:
    return msgspec.json.encode(msgspec.json.decode(text)).decode()


def _retold(new: Ledger, old: Ledger, run: Any) -> None:
    """The same run in another ledger, in the words of that time."""
    clock = SystemClock()
    for record in old.read(run):
        tag, data = _as_once(record)
        event = CustomEvent(kind="test.note") if tag == "message.recorded" else record.event
        entry = Entry(str(record.event_id), tag, data, event)
        epoch = 1 if record.version > 2 else None
        blobs = {name: old.blob(name) for name in blobs_named(event)}
        request = AppendRequest(str(run), [entry], ANY_VERSION, epoch, blobs)
        new.store.write(lambda tx, request=request: append(tx, request, clock))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "reused"])
def test_a_run_in_old_events_is_what_todays_code_does(kind: str, tmp_path: Path) -> None:
    """Through the upcasters: folded, and step by step to its end."""
    run = new_run_id()
    with Ledger.open("memory://") as old, Ledger.open("memory://") as new:
        Compact(kind, tmp_path / "effects", old).execute(Order(), run_id=run)
        _retold(new, old, run)
        tags = {record.tag for record in new.read(run)}
        assert "message.recorded" in tags
        assert "message.appended" not in tags
        with Ledger.open("memory://") as nowhere:
            loop = Compact(kind, tmp_path / "again", nowhere)
            for found in (replay(new, run), replay(new, run, loop=loop)):
                assert found.divergence is None, str(found.divergence)
                assert found.version == old.head(run)
    assert not (tmp_path / "again").exists()
