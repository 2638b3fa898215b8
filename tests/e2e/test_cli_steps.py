"""Runs made of steps on the command line: looked at, decided about, forked, compared, tested."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import turnledger
from tests import step_runs
from tests.e2e.driving import InProcess, Processes
from tests.e2e.stories import said
from tests.e2e.test_cli_tools import table
from tests.projects import FOREIGN_PLUGINS
from tests.step_runs import CHAT, asks_model, begins, block, doubts, ends, record_run, workflow
from turnledger.ledger import Event, RunWaiting, ToolCallDecided
from turnledger.ledger.events.messages import ToolCallRecord

SCRIPT = Path(__file__).with_name("shop_script.py")
PAY = "settle#1/pay:17"


@pytest.fixture
def order(cli: InProcess) -> UUID:
    """A block that has ended: a model call, nested steps, one that raised, one without a value."""
    with cli.ledger() as ledger:
        return record_run(ledger, step_runs.order())


def recorded(cli: InProcess, *events: Event) -> UUID:
    with cli.ledger() as ledger:
        return record_run(ledger, list(events))


# --- looking ---------------------------------------------------------------------------


def test_tools_lists_steps_under_the_one_that_they_are_in(cli: InProcess, order: UUID) -> None:
    """With attempts, values, errors, and why a value is missing; model calls are in JSON."""
    rows = table(cli("tools", "order-17").out)
    assert [row[0] for row in rows[1:6]] == [
        "settle#1",
        "settle#1/check:17",
        "settle#1/pay:17",
        "mail#1",
        "report#1",
    ]
    out = cli("tools", "order-17").out
    assert '{"receipt":4711}' in out
    assert "no such mailbox" in out
    assert "not recorded: a socket is not JSON" in out
    calls = cli("tools", "order-17", "-o", "json").json
    assert [(call["kind"], call["call_id"]) for call in calls][:2] == [
        ("model", f"{CHAT}:3f9a"),
        ("tool", "settle#1"),
    ]


def test_steps_that_began_side_by_side_stand_under_their_own(cli: InProcess) -> None:
    """Whatever the order of their events."""
    run = recorded(
        cli,
        block(),
        begins("a#1"),
        begins("b#1"),
        begins("b#1/x#1", parent="b#1"),
        begins("a#1/x#1", parent="a#1"),
        asks_model("a#1/m:1", parent="a#1"),
        begins("a#1/x#1/y#1", parent="a#1/x#1"),
        ends("a#1/x#1/y#1"),
    )
    expected = ["a#1", "a#1/x#1", "a#1/x#1/y#1", "a#1/m:1", "b#1", "b#1/x#1"]
    assert [row[0] for row in table(cli("tools", run).out)[1:]] == expected
    left = [row[0] for row in table(cli("tools", run, "--pending").out)[1:]]
    assert left == [one for one in expected if one != "a#1/x#1/y#1"]


def test_a_step_stands_for_the_call_whose_id_is_its_key(cli: InProcess) -> None:
    """A loop with a wrapped client: the message asks, the step performs, a message answers."""
    calls = (ToolCallRecord("c1", "search", "{}"), ToolCallRecord("c2", "search", "{}"))
    asked = (block(), said("assistant", "", 1, tool_calls=calls), begins("search:c1"))
    run = recorded(cli, *asked, ends("search:c1", 5))
    assert [row[0] for row in table(cli("tools", run).out)[1:]] == ["c2", "search:c1"]
    assert [call["call_id"] for call in cli("pending", run, "-o", "json").json] == ["c2"]
    assert len(cli("tools", run, "-o", "json").json) == 3


def test_timeline_indents_inner_steps(cli: InProcess, order: UUID) -> None:
    """A model call that was tried again is one line, which says so."""
    shown = cli("timeline", "order-17").out
    assert re.search("  tool   settle  ", shown)
    assert re.search("  tool     pay  ", shown)
    assert re.search("  model  gpt-5-mini +ok, 1 failed before ", shown)
    rows = {row["call_id"]: row for row in cli("timeline", "order-17", "-o", "json").json}
    assert rows[PAY]["parent"] == "settle#1"
    assert rows[f"{CHAT}:3f9a"]["failed_attempts"] == 1


def test_usage_names_steps(cli: InProcess, order: UUID) -> None:
    """In place of evaluations and turns, which a block has none of."""
    rows = table(cli("usage", "order-17").out)
    assert rows[-2][:2] == ["step", "model"]
    assert rows[-1][:3] == [f"{CHAT}:3f9a", "gpt-5-mini", "100"]
    assert cli("usage", "--by-day", "-o", "json").json[0]["failed_calls"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("messages",),
        ("log",),
        ("state",),
        ("show",),
        ("show", "7"),
        ("diff", "4", "9"),
        ("blame", "/tools/3/value"),
        ("export",),
        ("verify",),
        ("replay",),
    ],
    ids=" ".join,
)
def test_every_other_view_takes_a_run_of_steps(
    cli: InProcess, order: UUID, words: tuple[str, ...]
) -> None:
    """None of them needs a message or an evaluation."""
    command, *more = words
    done = cli(command, "order-17", *more)
    assert done.code == 0, done.err


def test_a_run_without_messages_says_so(cli: InProcess, order: UUID) -> None:
    """And a transcript of it is refused, as there is none."""
    assert "empty" in cli("messages", "order-17").err
    refused = cli("export", "order-17", "--format", "openai-chat")
    assert refused.code == 1
    assert "no messages" in refused.err


def test_blame_finds_the_event_of_a_steps_value(cli: InProcess, order: UUID) -> None:
    """The outcome, of a model call too."""
    assert cli("blame", "order-17", "/tools/3/value").json["version"] == 9
    assert cli("blame", "order-17", "/tools/0/value").json["version"] == 4


def test_compare_shows_other_arguments_and_values(cli: InProcess, order: UUID) -> None:
    """Exit code 6, at the first step whose value differs."""
    with cli.ledger() as ledger:
        other = record_run(ledger, step_runs.order(euros=90), UUID(int=9))
    done = cli("compare", "order-17", other)
    assert done.code == 6
    assert "/value/open 120 → 90" in done.out
    assert "/arguments/euros 120 → 90" in done.out


# --- deciding --------------------------------------------------------------------------


def waiting(call_id: str = "pay#1") -> list[Event]:
    begin = begins(call_id, {"euros": 5}, on_interrupt="ask")
    return [block(), begin, doubts(call_id), RunWaiting(reason="ask", call_ids=(call_id,))]


def test_pending_shows_what_waits_and_who_continues_it(cli: InProcess) -> None:
    """A step in doubt waits for a person; its script goes on, and no command."""
    recorded(cli, *waiting())
    done = cli("pending")
    assert "in_doubt, waits" in done.out
    assert "scripts are run again: order-17." in done.err
    (call,) = cli("pending", "order-17", "-o", "json").json
    assert (call["kind"], call["is_step"], call["arguments"]) == ("tool", True, '{"euros": 5}')


@pytest.mark.parametrize(
    ("words", "decision", "value", "text"),
    [
        (("--completed", '{"paid": 5}'), "completed", {"paid": 5}, ""),
        (("--completed",), "completed", None, ""),
        (("--failed", "the bank refused"), "failed", None, "the bank refused"),
        (("--retry",), "retry", None, ""),
    ],
)
def test_a_step_is_decided_about(
    cli: InProcess, words: tuple[str, ...], decision: str, value: object, text: str
) -> None:
    """The value is JSON, and there is no tool message; how to continue is said."""
    run = recorded(cli, *waiting())
    done = cli("resolve", "order-17", "pay#1", *words, "--by", "ann")
    assert done.code == 0, done.err
    assert "run its script again, with turnledger.run('order-17')" in done.err
    with cli.ledger() as ledger:
        (*_, last) = ledger.read(run)
    assert isinstance(last.event, ToolCallDecided)
    assert (last.event.decision, last.event.value, last.event.text) == (decision, value, text)
    assert last.event.attempt == 1


def test_a_model_call_in_doubt_is_decided_about(cli: InProcess) -> None:
    """It has no `tool_call.started`, and is decided about like any other."""
    chat = f"{CHAT}:1"
    run = recorded(cli, workflow(), asks_model(chat, on_interrupt="ask"), doubts(chat))
    assert table(cli("tools", run).out)[1][:3] == [chat, CHAT, "in_doubt"]
    done = cli("resolve", run, chat, "--retry")
    assert done.code == 0, done.err
    assert "--app module:workflow" in done.err
    assert cli("pending", run, "-o", "json").json[0]["decision"] == "retry"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pay#1", "--completed", "paid"), 2, "not JSON"),
        (("pay#1", "--completed", "5", "--text", "Paid."), 2, "no text for a model"),
        (("pay#2", "--retry"), 3, "Calls that have not ended: pay#1"),
    ],
)
def test_a_decision_that_a_step_cant_take_is_refused(
    cli: InProcess, words: tuple[str, ...], code: int, said: str
) -> None:
    """Nothing is recorded."""
    run = recorded(cli, *waiting())
    done = cli("resolve", "order-17", *words)
    assert (done.code, said in done.err) == (code, True), done.err
    with cli.ledger() as ledger:
        assert ledger.head(run) == 4


def test_an_inner_step_of_one_that_ended_takes_no_decision(cli: InProcess) -> None:
    """It is never asked for again."""
    outer = (block(), begins("a#1"), begins("a#1/b#1", parent="a#1"), ends("a#1"))
    recorded(cli, *outer)
    assert cli("pending", "order-17").out == ""
    done = cli("resolve", "order-17", "a#1/b#1", "--retry")
    assert done.code == 3
    assert "the call that it is in has ended" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("recover", "order-17"),
        ("replay", "order-17"),
        ("run", "Tea.", "--continues", "order-17"),
    ],
    ids=" ".join,
)
def test_no_command_calls_a_block(cli: InProcess, order: UUID, words: tuple[str, ...]) -> None:
    """It is left to its script, and each command says so."""
    done = cli(*words, "--app", "tests.shop_agent:loop")
    assert (done.code, done.out) == (1, "")
    assert "run its script again, with turnledger.run('order-17')" in done.err
    assert "TURNLEDGER_REPLAY=1" in done.err


# --- a real script: killed, decided, continued -----------------------------------------


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: Path) -> Iterator[Path]:
    """A folder with the script, which is the current one."""
    folder = tmp_path / "shop"
    folder.mkdir()
    shutil.copy(SCRIPT, folder / "shop.py")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("SHOP_BANK", str(folder / "bank"))
    monkeypatch.setenv("TURNLEDGER_DB", str(db))
    yield folder
    sys.modules.pop("shop", None)


def imported_shop() -> Any:
    sys.path.insert(0, str(Path.cwd()))
    return import_module("shop")


def script(**env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "shop.py"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


@pytest.mark.process
def test_a_killed_block_is_decided_about_and_continued_by_its_script(
    cli: InProcess, processes: Processes, shop: Path
) -> None:
    """Commands show it and name the script; none of them calls it."""
    assert script(SHOP_DIES="pay").returncode == -signal.SIGKILL
    assert table(processes("tools", "order-17").out)[3][:3] == [PAY, "pay", "started"]
    refused = cli("recover", "order-17", "--app", "tests.shop_agent:loop")
    assert refused.code == 1
    assert "run its script again, with turnledger.run('order-17')" in refused.err
    left = cli("recover", "--all", "--app", "tests.shop_agent:loop")
    assert left.code == 0
    assert "Left to their scripts" in left.err
    assert "order-17 (running)" in left.err
    assert "waits for a decision" in script().stderr
    assert cli("resolve", "order-17", PAY, "--completed", '{"receipt": 5}').code == 0
    assert script().stderr == "{'receipt': 5}\n"
    assert Path("bank").read_text() == "17\n"
    assert cli("recover", "--all", "--app", "tests.shop_agent:loop").err == "Nothing to recover.\n"


def test_a_fork_of_a_block_with_another_value_is_continued_by_its_id(
    cli: InProcess, shop: Path
) -> None:
    """What if the step had returned something else? Nothing is paid to find out."""
    code = imported_shop()
    with cli.ledger() as ledger, turnledger.run("order-17", ledger=ledger):
        assert code.settle(17) == {"receipt": 17}
    child = cli("fork", "order-17", "--tool", PAY, "--result", '{"receipt": 6}').out.strip()
    with cli.ledger() as ledger, turnledger.run(child, ledger=ledger):
        assert code.settle(17) == {"receipt": 6}
    assert Path("bank").read_text() == "17\n"
    assert cli("compare", "order-17", child).code == 6
    assert cli("fork", "order-17", "--tool", PAY, "--result", "six").code == 2


def test_a_fork_of_a_workflow_is_recovered(cli: InProcess, shop: Path) -> None:
    """With the input that the first one was given."""
    code = imported_shop()
    with cli.ledger() as ledger:
        code.settled.run(17, ledger=ledger, run_id="order-18")
        child = cli("fork", "order-18", "--at", f"tool:{PAY}").out.strip()
        assert cli("tools", child, "-o", "json").json[0]["status"] == "in_doubt"
        assert code.settled.recover(child, ledger=ledger).output == {"receipt": 17}
    assert Path("bank").read_text() == "17\n"


def test_a_fork_changes_a_models_answer(cli: InProcess, order: UUID) -> None:
    """A model call as a step is named by its call, and has a value as any step has."""
    answer = ("--tool", f"{CHAT}:3f9a", "--result", '{"text": "Do not pay."}')
    child = cli("fork", "order-17", *answer).out.strip()
    (call,) = cli("tools", child, "-o", "json").json
    assert (call["kind"], call["value"]) == ("model", {"text": "Do not pay."})
    assert cli("fork", "order-17", "--at", "turn:0").code == 3


# --- export --test ---------------------------------------------------------------------


def pytest_on(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*sys.path[:1], str(folder), *sys.path]),
            "PYTEST_ADDOPTS": FOREIGN_PLUGINS,
        },
    )


@pytest.mark.process
def test_runs_of_steps_become_tests(cli: InProcess, shop: Path) -> None:
    """They pass on the code that recorded them, perform nothing, and find the changed step."""
    code = imported_shop()
    with cli.ledger() as ledger:
        code.settled.run(17, ledger=ledger, run_id="w")
        with turnledger.run("order-17", ledger=ledger):
            code.settle(17)
    before = Path("bank").read_text()
    for run, app, argument in (
        ("order-17", "shop.py", '"../shop.py"'),
        ("w", "shop:settled", "settled"),
    ):
        name = f"test_{run.replace('-', '_')}"
        done = cli("export", run, "--test", f"tests/{name}.py", "--app", app)
        assert "The test passes with your current code." in done.err, done.err
        text = Path(f"tests/{name}.py").read_text()
        assert f'turnledger_replay("histories/{name}.jsonl", {argument})' in text
    passed = pytest_on(shop)
    assert "2 passed" in passed.stdout, passed.stdout
    source = Path("shop.py").read_text()
    source = source.replace("print(settle(17)", "print(settle(18)")
    Path("shop.py").write_text(source.replace("return settle(order)", "return settle(order + 1)"))
    failed = pytest_on(shop)
    assert "2 failed" in failed.stdout, failed.stdout
    assert failed.stdout.count("step arguments changed") >= 2
    assert Path("bank").read_text() == before


def test_a_block_is_tested_by_its_script_alone(cli: InProcess, order: UUID, shop: Path) -> None:
    """A module's function can't run it again, and a script that does not open it is no test."""
    words = ("export", "order-17", "--test", "test_order.py", "--app")
    refused = cli(*words, "shop:settled")
    assert refused.code == 2
    assert "--app is that script" in refused.err
    Path("empty.py").write_text("")
    done = cli(*words, "empty.py")
    assert "did not open the block of run" in done.err
    Path("left.py").write_text(
        'import turnledger\nwith turnledger.run("order-17", ledger="x.db"):\n    raise SystemExit\n'
    )
    left = cli(*words, "left.py", "--force")
    assert "did not end the block of run" in left.err
    assert not Path("x.db").exists()
    Path("gone").mkdir()
    assert "There is no script" in cli(*words, "gone/shop.py", "--force").err


def test_a_step_is_no_factory_of_loops(cli: InProcess, shop: Path) -> None:
    """It could be called with a ledger, and would pay something."""
    run = recorded(cli, workflow("shop/settle", 17))
    for words in (("replay", run), ("recover", run), ("recover", "--all")):
        done = cli(*words, "--app", "shop:pay")
        assert (done.code, Path("bank").exists()) == (2, False), done.err
