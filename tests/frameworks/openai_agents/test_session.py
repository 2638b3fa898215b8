"""`TurnledgerSession` keeps the SDK's documented protocol, as its SQLiteSession does."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, SessionSettings, SQLiteSession, function_tool
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message, function_call
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from turnledger.adapters.cli import turnledger as command_line
from turnledger.ledger import (
    ANY,
    InvalidEventError,
    Ledger,
    LedgerClosedError,
    RedactedStateError,
    RunStarted,
    run_id_for,
)
from turnledger.openai_agents import (
    SessionMismatchError,
    TurnledgerHooks,
    TurnledgerSession,
)

texts = st.text(max_size=8)
values = st.none() | st.booleans() | st.integers(-9, 9) | texts
items = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts}),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": texts, "name": texts, "arguments": texts}
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call_output"), "call_id": texts, "output": texts}
    ),
    st.dictionaries(texts, values | st.lists(values, max_size=3), max_size=3),
)
limits = st.none() | st.integers(-1, 4)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("add_items"), st.lists(items, max_size=4)),
        st.tuples(st.just("get_items"), limits),
        st.tuples(st.just("pop_item")),
        st.tuples(st.just("clear_session")),
    ),
    max_size=14,
)


def ask(text: str) -> Any:
    return {"role": "user", "content": text}


@settings(max_examples=50)
@given(operations, limits)
def test_behaves_as_the_sdks_own_session(done: list[Any], limit: int | None) -> None:
    """Any sequence of operations gives what SQLiteSession gives, also to a session opened anew."""
    chosen = SessionSettings(limit=limit)

    async def work() -> None:
        reference = SQLiteSession("chat", session_settings=chosen)
        for name, *arguments in done:
            expected = await getattr(reference, name)(*arguments)
            assert await getattr(session, name)(*arguments) == expected
        again = TurnledgerSession("chat", ledger)
        assert await again.get_items() == await reference.get_items(-1)
        reference.close()

    with Ledger.open("memory://") as ledger:
        session = TurnledgerSession("chat", ledger, session_settings=chosen)
        asyncio.run(work())
        assert not ledger.head(run_id_for("chat")) or ledger.verify(run_id_for("chat")).ok


def test_sessions_are_kept_on_every_store(ledger: Ledger) -> None:
    """Items, pops and clears of two sessions are apart, and outlive the session objects."""

    async def work() -> None:
        one, other = (TurnledgerSession(name, ledger) for name in ("one", "other"))
        assert isinstance(one, Session)
        await one.add_items([ask("a"), ask("b"), ask("c")])
        await other.add_items([ask("x")])
        assert await one.pop_item() == ask("c")
        await one.add_items([ask("d")])
        assert await TurnledgerSession("one", ledger).get_items(2) == [ask("b"), ask("d")]
        await other.clear_session()
        assert await other.pop_item() is None
        await other.add_items([ask("y")])
        assert await TurnledgerSession("other", ledger).get_items() == [ask("y")]
        assert await TurnledgerSession("one", ledger).get_items() == list(map(ask, "abd"))

    asyncio.run(work())


def test_concurrent_pops_take_each_item_once(ledger: Ledger) -> None:
    """Sessions of one id that pop and add at once: an item is popped once or still there."""
    sessions = [TurnledgerSession("chat", ledger) for _ in range(4)]

    async def work() -> None:
        await sessions[0].add_items([ask(str(n)) for n in range(8)])
        adds = [sessions[n % 4].add_items([ask(f"new {n}")]) for n in range(4)]
        pops = [sessions[n % 4].pop_item() for n in range(8)]
        done = await asyncio.gather(*pops, *adds)
        left = await sessions[0].get_items()
        seen = [item["content"] for item in [*filter(None, done), *left]]
        assert sorted(seen) == sorted([*map(str, range(8)), *(f"new {n}" for n in range(4))])

    asyncio.run(work())


def test_cancelled_add_is_whole(tmp_path: Path) -> None:
    """An add that has begun ends before its cancellation is raised: it is never half done."""
    began, go_on = Flag(), Flag()

    async def work() -> None:
        append = ledger.append

        def slow(*args: Any, **kwargs: Any) -> Any:
            began.set()
            assert go_on.wait(30)
            return append(*args, **kwargs)

        ledger.append = slow  # type: ignore[method-assign]
        session = TurnledgerSession("chat", ledger)
        task = asyncio.create_task(session.add_items([ask("a"), ask("b")]))
        await asyncio.to_thread(began.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session.get_items() == [ask("a"), ask("b")]

    with Ledger.open(tmp_path / "a.db") as ledger:
        asyncio.run(work())


def test_closed_session_refuses(tmp_path: Path) -> None:
    """No operation of a closed session succeeds, an empty add included; its ledger stays open."""
    with Ledger.open(tmp_path / "a.db") as ledger:
        session = TurnledgerSession("chat", ledger)
        asyncio.run(session.add_items([ask("a")]))
        session.close()
        for refused in (
            lambda: session.add_items([]),
            lambda: session.add_items([ask("b")]),
            session.get_items,
            session.pop_item,
            session.clear_session,
        ):
            with pytest.raises(LedgerClosedError):
                asyncio.run(refused())
        assert asyncio.run(TurnledgerSession("chat", ledger).get_items()) == [ask("a")]


def test_refused_items_leave_no_trace(tmp_path: Path) -> None:
    """Items that are not JSON, or that the redactor would change, are refused with all others."""
    secret = "ghp_" + "a1B2" * 9
    with Ledger.open(tmp_path / "a.db") as ledger:
        session = TurnledgerSession("chat", ledger)
        with pytest.raises(RedactedStateError, match=r"CustomEvent\.data\.content"):
            asyncio.run(session.add_items([ask("a"), ask(f"my key is {secret}")]))
        not_json: Any = {"role": "user", "content": object()}
        with pytest.raises(InvalidEventError, match="object is not JSON"):
            asyncio.run(session.add_items([ask("a"), not_json]))
        assert not ledger.head(run_id_for("chat"))
        ledger.append(run_id_for("order"), RunStarted(request_type="orders"), ANY)
        with pytest.raises(SessionMismatchError):
            asyncio.run(TurnledgerSession("order", ledger).add_items([ask("a")]))


def test_growth_is_flat(tmp_path: Path) -> None:
    """The last turns of a long session cost as many bytes as the first ones."""
    path = tmp_path / "a.db"

    def used() -> int:
        with Ledger.open(path) as ledger:
            records = ledger.read(run_id_for("chat"))
            return sum(len(record.data) for record in records)

    session = TurnledgerSession("chat", path)
    sizes = [0]
    for _ in range(3):
        for _ in range(20):
            asyncio.run(session.add_items([ask("x" * 100), ask("y" * 100)]))
        sizes.append(used())
    first, _, last = (after - before for before, after in pairwise(sizes))
    assert last < 1.05 * first
    session.close()


# --- with the SDK's runner ----------------------------------------------------------------


def shop(ledger: Ledger) -> Any:
    """An agent with a tool that looks at the ledger while it runs."""

    @function_tool
    def pay(amount: int) -> str:
        """Pay."""
        (call,) = shown(ledger.url, "tools")
        seen.append(call["status"])
        return f"paid {amount}"

    seen: list[str] = []
    model = ScriptedModel(
        [
            [function_call("pay", {"amount": 7}, call_id="call_1")],
            [assistant_message("Done.", item_id="msg_1")],
            [assistant_message("You paid 7.", item_id="msg_2")],
        ]
    )
    return Agent(name="shop", model=model, tools=[pay]), seen


def shown(path: str, view: str) -> Any:
    run = str(run_id_for("chat"))
    done = CliRunner().invoke(command_line, [view, run, "--db", path, "-o", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_runner_keeps_a_chat(tmp_path: Path) -> None:
    """Two runs of the SDK leave the same items as in its own session, and the views show them."""
    quiet = RunConfig(tracing_disabled=True)

    async def chat(session: Any, hooks: Any = None) -> list[Any]:
        agent, seen = shop(ledger)
        if hooks is None:
            agent.tools = [function_tool(lambda amount: f"paid {amount}", name_override="pay")]
        await Runner.run(agent, "Pay 7.", session=session, hooks=hooks, run_config=quiet)
        await Runner.run(agent, "What now?", session=session, hooks=hooks, run_config=quiet)
        assert hooks is None or seen == ["started"]
        return list(await session.get_items())

    with Ledger.open(tmp_path / "a.db") as ledger:
        session = TurnledgerSession("chat", ledger)
        kept = asyncio.run(chat(session, TurnledgerHooks(session)))
        assert kept == asyncio.run(chat(SQLiteSession("reference")))
    path = str(tmp_path / "a.db")
    roles = [turn["role"] for turn in shown(path, "messages") if not turn.get("synthetic")]
    assert roles == ["user", "assistant"] * 3
    (call,) = shown(path, "tools")
    assert (call["name"], call["status"], call["result"]) == ("pay", "completed", "paid 7")
    assert shown(path, "usage")["total"]["calls"] == 3
    spans = [(span["kind"], span["outcome"]) for span in shown(path, "timeline") if span["outcome"]]
    assert spans == [("model", "ok"), ("tool", "ok"), ("model", "ok"), ("model", "ok")]
