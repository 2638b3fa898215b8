"""`TurnledgerSessionStore`: the SDK's own contracts, and what the ledger adds to them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from claude_agent_sdk import get_session_messages_from_store, list_sessions_from_store
from claude_agent_sdk.testing import run_session_store_conformance
from click.testing import CliRunner

from turnledger.adapters.cli import turnledger as command_line
from turnledger.claude import SessionMismatchError, TurnledgerSessionStore
from turnledger.ledger import (
    ANY,
    Ledger,
    LedgerClosedError,
    RedactedStateError,
    RunStarted,
    run_id_for,
)
from turnledger.projections import Usage, fold

SESSION = "3f2b1c9e-6a51-4c8e-9d0a-1b2c3d4e5f60"
KEY: Any = {"project_key": "-work-shop", "session_id": SESSION}
SUB: Any = {**KEY, "subpath": "subagents/agent-7"}
NAME = f"-work-shop/{SESSION}"


def entry(uuid: str, kind: str, message: Any, parent: str | None = None, **more: Any) -> Any:
    """A line of a transcript as the CLI writes it."""
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": "2026-11-18T01:02:03.000Z",
        "cwd": "/work/shop",
        "isSidechain": False,
        "message": message,
        **more,
    }


def reply(block: Any, output_tokens: int, **more: Any) -> Any:
    usage = {"input_tokens": 20, "output_tokens": output_tokens, "cache_read_input_tokens": 5}
    return {
        "id": "msg_1",
        "role": "assistant",
        "model": "claude-test",
        "content": [block],
        "usage": usage,
        **more,
    }


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "orders.csv"}
# A turn with a tool: the reply is two entries, each with the usage as it was then.
TURN = [
    entry("u1", "user", {"role": "user", "content": "What is here?"}),
    entry("a1", "assistant", reply({"type": "text", "text": "I look."}, 2), "u1"),
    entry("a2", "assistant", reply(CALL, 9, stop_reason="tool_use"), "a1"),
    entry(
        "u2",
        "user",
        {"role": "user", "content": [RESULT]},
        "a2",
        toolUseResult={"stdout": "orders.csv", "interrupted": False},
    ),
    entry(
        "a3",
        "assistant",
        {**reply({"type": "text", "text": "One file."}, 4), "id": "msg_2"},
        "u2",
    ),
    {"type": "summary", "summary": "Files of the shop", "leafUuid": "a3"},
]


def test_contracts_of_the_sdk(ledger: Ledger) -> None:
    """All 14 contracts hold on every store, after sessions of the same ids were deleted there."""

    async def emptied() -> TurnledgerSessionStore:
        sessions = TurnledgerSessionStore(ledger)
        for run in ledger.runs(status="running"):
            project, session = run.tags["claude.project"], run.tags["claude.session"]
            await sessions.delete({"project_key": project, "session_id": session})
        return sessions

    asyncio.run(run_session_store_conformance(emptied))
    assert sum(run.status == "abandoned" for run in ledger.runs()) > 14


def test_known_entries_in_a_batch_are_skipped(ledger: Ledger) -> None:
    """A batch with some known uuids is taken: the new entries are appended, once, in order."""
    sessions, again = TurnledgerSessionStore(ledger), TurnledgerSessionStore(ledger)

    async def work() -> list[Any] | None:
        await sessions.append(KEY, TURN[:3])
        await again.append(KEY, TURN[1:5])
        await again.append(KEY, TURN[:5])
        return await sessions.load(KEY)

    assert asyncio.run(work()) == TURN[:5]
    state = fold(ledger.read(run_id_for(NAME)), Usage())
    assert state.total.calls == 2


def test_entries_are_kept_as_they_are(ledger: Ledger) -> None:
    """Whatever JSON an entry has comes back deeply equal, also if no message can be read of it."""
    odd = [
        entry("o1", "user", {"role": "user", "content": 7}),
        entry("o2", "assistant", None),
        {"type": "user"},
        entry("o3", "user", {"role": "stranger", "content": [{"type": "new", "x": [None, 1.5]}]}),
        {"type": "queue-operation", "content": {"nested": {"text": "ä\u2028"}}},
    ]
    sessions = TurnledgerSessionStore(ledger)

    async def work() -> list[Any] | None:
        await sessions.append(KEY, odd)
        return await sessions.load(KEY)

    assert asyncio.run(work()) == odd


def test_many_writers_lose_nothing(ledger: Ledger) -> None:
    """Stores that append to one session at once record every entry exactly once."""
    stores = [TurnledgerSessionStore(ledger) for _ in range(4)]
    lines = [entry(f"e{n}", "user", {"role": "user", "content": str(n)}) for n in range(40)]

    async def work() -> list[Any] | None:
        writes = [stores[n % 4].append(KEY, lines[n : n + 2]) for n in range(40)]
        await asyncio.gather(*writes)
        return await stores[0].load(KEY)

    loaded = asyncio.run(work())
    assert loaded is not None
    assert sorted(line["uuid"] for line in loaded) == sorted(line["uuid"] for line in lines)


def test_batch_larger_than_one_append(ledger: Ledger) -> None:
    """A batch of the SDK's largest size is more events than one append takes, and is whole."""
    lines = [entry(f"e{n}", "user", {"role": "user", "content": str(n)}) for n in range(600)]
    sessions = TurnledgerSessionStore(ledger)

    async def work() -> list[Any] | None:
        await sessions.append(KEY, lines)
        return await sessions.load(KEY)

    assert asyncio.run(work()) == lines


def test_redacted_entries_are_refused(tmp_path: Path) -> None:
    """An entry that would be read back without a secret is refused, and nothing is written."""
    secret = "ghp_" + "a1B2" * 9
    lines = [*TURN[:1], entry("s1", "user", {"role": "user", "content": f"use {secret}"})]
    with Ledger.open(tmp_path / "a.db") as ledger:
        sessions = TurnledgerSessionStore(ledger)
        with pytest.raises(
            RedactedStateError, match=r"CustomEvent\.data\.message.content.*redactor=None"
        ):
            asyncio.run(sessions.append(KEY, lines))
        assert not list(ledger.runs())
    with Ledger.open(tmp_path / "b.db", redactor=None) as ledger:
        sessions = TurnledgerSessionStore(ledger)
        asyncio.run(sessions.append(KEY, lines))
        assert asyncio.run(sessions.load(KEY)) == lines


def test_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A run with the session's name that is not a session is left alone, by a typed error."""
    with Ledger.open(tmp_path / "a.db") as ledger:
        ledger.append(run_id_for(NAME), RunStarted(request_type="orders"), ANY)
        with pytest.raises(SessionMismatchError, match="begun as 'orders', expected"):
            asyncio.run(TurnledgerSessionStore(ledger).append(KEY, TURN))
        assert ledger.head(run_id_for(NAME)) == 1


def test_helpers_of_the_sdk_read_the_store(ledger: Ledger) -> None:
    """Listing, summaries and messages by the SDK's own functions, after appends and a deletion."""
    sessions = TurnledgerSessionStore(ledger)
    other: Any = {**KEY, "session_id": str(uuid4())}

    async def listed() -> list[tuple[str, str]]:
        found = await list_sessions_from_store(sessions, directory="/work/shop")
        return [(info.session_id, info.summary) for info in found]

    async def work() -> None:
        await sessions.append(KEY, TURN[:4])
        assert await listed() == [(SESSION, "What is here?")]
        await sessions.append(KEY, TURN[4:])
        await sessions.append(other, TURN[:1])
        await sessions.append(SUB, TURN[:1])
        assert sorted(await listed()) == sorted(
            [(SESSION, "Files of the shop"), (other["session_id"], "What is here?")]
        )
        said = await get_session_messages_from_store(sessions, SESSION, directory="/work/shop")
        assert [line.uuid for line in said] == ["u1", "a1", "a2", "u2", "a3"]
        await sessions.delete(KEY)
        assert await listed() == [(other["session_id"], "What is here?")]
        assert await sessions.list_subkeys(KEY) == []

    asyncio.run(work())


def test_views_show_the_session(tmp_path: Path) -> None:
    """`messages`, `tools`, `usage` and `timeline` work on a session, by its tag."""
    path = str(tmp_path / "sessions.db")
    sessions = TurnledgerSessionStore(path)

    async def work() -> None:
        await sessions.append(KEY, TURN[:2])
        await sessions.append(KEY, TURN[2:])
        await sessions.append(SUB, TURN[:1])

    asyncio.run(work())
    sessions.close()
    with pytest.raises(LedgerClosedError):
        asyncio.run(sessions.load(KEY))

    def shown(view: str) -> Any:
        done = CliRunner().invoke(
            command_line, [view, str(run_id_for(NAME)), "--db", path, "-o", "json"]
        )
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    roles = [turn["role"] for turn in shown("messages") if not turn.get("synthetic")]
    assert roles == ["user", "assistant", "user", "assistant"]
    (call,) = shown("tools")
    assert (call["name"], call["status"], call["result"]) == ("Bash", "completed", "orders.csv")
    usage = shown("usage")
    # The first reply came in two batches: each entry has the usage up to it.
    assert usage["total"]["input_tokens"] == 25 + 25
    assert usage["total"]["output_tokens"] == 9 + 4
    assert [span["name"] for span in shown("timeline")] == ["Bash"]
