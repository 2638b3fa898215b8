"""`turnledger run` and `chat`: an agent from the command line, killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.driving import PROGRAM, InProcess, Processes
from turnledger.ledger import Ledger

AGENT = '''
import os, signal
from dataclasses import dataclass
from turnledger import Agent, ToolCall, Reply, tool


@dataclass
class Ticket:
    customer: str


@tool
def look(city: str) -> str:
    """Look it up."""
    if os.environ.get("DIE") == "in tool":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{city} is nice."


@tool(needs_approval=True)
def book(city: str) -> str:
    """Book a room."""
    return f"Booked in {city}."


def model(request):
    asked = [b.text for t in request.turns if t.role == "user" for b in t.blocks if hasattr(b, "text")]
    word = asked[-1].split()[0].lower()
    if request.turn == 1 and word in ("look", "book"):
        call = ToolCall(f"call_{len(asked)}", word, '{"city": "Porto"}')
        return Reply(tool_calls=(call,))
    if word == "fail":
        raise ValueError("the model is away")
    return Reply(text=f"Answer {len(asked)} to {asked[-1]}")


agent = Agent("travel/agent", model=model, instructions="Travel.", tools=[look, book])
typed = Agent("travel/typed", model=[Reply(text="ok")], instructions="Help ${customer}.", input=Ticket)
'''


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The agent, in a module that the command finds."""
    name = f"agent_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    return f"{name}:agent"


def statuses(db: Path) -> list[str]:
    """Of all runs, the oldest first."""
    with Ledger.open(db) as ledger:
        return [one.status for one in ledger.runs()][::-1]


def test_run_begins_a_run_and_prints_its_answer(cli: InProcess, app: str) -> None:
    """The ledger is made, the id said first, tags recorded; `-` reads stdin."""
    first = cli("run", "--app", app, "Hello there.", "--tag", "customer=acme", "-o", "json")
    assert first.code == 0
    assert first.json["text"] == "Answer 1 to Hello there."
    assert first.err == f"Run {first.json['run_id']}\n"
    second = cli("run", "--app", app, "-", "--continues", "customer=acme", stdin="And now?")
    assert "Answer 2 to And now?" in second.out
    assert cli("replay", "@last", "--app", app).code == 0
    assert [one["agent"] for one in cli("runs", "-o", "json").json] == ["travel/agent"] * 2


def test_run_takes_json_for_a_typed_input(cli: InProcess, app: str) -> None:
    """What is not the type is a usage error, and no run begins."""
    typed = app.replace(":agent", ":typed")
    assert cli("run", "--app", typed, '{"customer": "Ann"}').code == 0
    wrong = cli("run", "--app", typed, "Ann")
    assert wrong.code == 2
    assert "not a Ticket" in wrong.err
    assert statuses(cli.db) == ["completed"]


def test_run_that_needs_a_person_exits_with_8_and_recover_goes_on(cli: InProcess, app: str) -> None:
    """Nothing has run before the approval; the decision names the call."""
    waits = cli("run", "--app", app, "Book it.")
    assert waits.code == 8
    assert "--approve" in waits.err
    assert cli("recover", "@last", "--app", app).code == 8
    assert cli("resolve", "@last", "call_1", "--deny", "Too dear.").code == 0
    assert cli("recover", "@last", "--app", app).code == 0
    assert "Too dear." in cli("messages", "@last").out


def test_an_app_that_is_not_an_agent_is_a_usage_error(cli: InProcess, app: str) -> None:
    """`run` takes agents and factories, `chat` agents."""
    for command in (("run", "--app", app.replace(":agent", ":Ticket")[:-6] + "model", "x"),):
        assert cli(*command).code in (1, 2)
    refused = cli("chat", "--app", app.replace(":agent", ":model"))
    assert refused.code == 2
    assert "expected an Agent" in refused.err


def test_a_chat_goes_on_from_its_newest_turn(cli: InProcess, app: str) -> None:
    """Each line is a turn; the same command later knows what was said. Names are apart."""
    first = cli("chat", "--app", app, "--name", "trip", stdin="Hello.\n\nlook around\n")
    assert first.out == "Answer 1 to Hello.\nAnswer 2 to look around\n"
    assert "look done: Porto is nice." in first.err
    again = cli("chat", "--app", app, "--name", "trip", stdin="Bye.\n")
    assert again.out == "Answer 3 to Bye.\n"
    other = cli("chat", "--app", app, "--name", "other", stdin="Hi.\n")
    assert other.out == "Answer 1 to Hi.\n"
    assert statuses(cli.db) == ["completed"] * 4


def test_a_chat_asks_for_approvals(cli: InProcess, app: str) -> None:
    """Approve, deny or edit, then the turn goes on in the same chat."""
    said = cli(
        "chat",
        "--app",
        app,
        stdin='book one\napprove\nbook two\ndeny\nNo.\nbook three\nedit\n{"city": "Faro"}\n',
    )
    assert said.code == 0
    results = cli("messages", "@last").out
    assert "Booked in Porto." in results
    assert "No." in results
    assert "Booked in Faro." in results
    assert statuses(cli.db) == ["completed"] * 3


def test_a_turn_that_fails_does_not_end_the_chat(cli: InProcess, app: str) -> None:
    """The error is shown, and the next line goes on from the failed turn."""
    said = cli("chat", "--app", app, stdin="fail now\nHello again.\n")
    assert "the model is away" in said.err
    assert said.out == "Answer 2 to Hello again.\n"


def test_a_killed_chat_first_goes_on_with_its_last_turn(processes: Processes, app: str) -> None:
    """After kill -9 inside a tool the same command recovers the turn, then takes the next line."""
    chat = (PROGRAM, "chat", "--app", app)
    victim = processes.start(*chat, env=processes.environment(DIE="in tool"))
    victim.communicate(b"look around\n", timeout=60)
    assert victim.returncode == -signal.SIGKILL
    assert statuses(processes.db) == ["running"]
    again = processes("chat", "--app", app, stdin="Bye.\n")
    assert again.code == 0
    assert "Going on with the last turn" in again.err
    assert again.out == "Answer 1 to look around\nAnswer 2 to Bye.\n"
    assert statuses(processes.db) == ["completed"] * 2
    assert json.loads(processes("replay", "@last", "--app", app, "-o", "json").out)["ok"]


def test_ctrl_c_in_a_chat_leaves_a_turn_that_goes_on(processes: Processes, app: str) -> None:
    """The prompt is told 130, and nothing of the turn is lost."""
    waiting = processes.start(PROGRAM, "chat", "--app", app)
    assert waiting.stdin is not None
    assert waiting.stderr is not None
    waiting.stdin.write(b"book it\n")
    waiting.stdin.flush()
    while b"Your decision" not in (line := os.read(waiting.stderr.fileno(), 4096)):
        assert line
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(timeout=60) == 130
    assert statuses(processes.db) == ["waiting"]
    again = processes("chat", "--app", app, stdin="approve\n")
    assert again.out == "Answer 1 to book it\n"
