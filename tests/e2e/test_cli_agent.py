"""`turnledger run` and `chat`: an agent from the command line, killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.driving import PROGRAM, InProcess, Processes
from turnledger.ledger import ANY, Ledger, RunAbandoned, RunParked

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
    said = [block for turn in request.turns if turn.role == "user" for block in turn.blocks]
    asked = [block.text for block in said if hasattr(block, "text")]
    word = asked[-1].split()[0].lower()
    if request.turn == 1 and word in ("look", "book"):
        call = ToolCall(f"call_{len(asked)}", word, '{"city": "Porto"}')
        return Reply(tool_calls=(call,))
    if word == "fail":
        raise ValueError("the model is away")
    return Reply(text=f"Answer {len(asked)} to {asked[-1]}")


agent = Agent("travel/agent", model=model, instructions="Travel.", tools=[look, book])
other = Agent("travel/other", model=model, instructions="Travel.", tools=[look, book])
typed = Agent(
    "travel/typed", model=[Reply(text="ok")], instructions="Help ${customer}.", input=Ticket
)
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
    """`run` takes agents and factories of loops, `chat` agents."""
    assert cli("run", "--app", app.replace(":agent", ":__doc__"), "x").code == 2
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


def test_recover_says_which_calls_were_run_again(processes: Processes, app: str) -> None:
    """A tool whose policy is "retry" is repeated, and not silently."""
    assert processes("run", "--app", app, "look around", DIE="in tool").code == -signal.SIGKILL
    recovered = processes("recover", "@last", "--app", app)
    assert recovered.code == 0
    assert "look (call_1) was run again, attempt 2" in recovered.err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (":agnt", "has no 'agnt'. Expected an Agent"),
        (":look", "'look' is a FunctionTool"),
        (":Ticket", "'Ticket' is a type"),
        (".py:agent", "is a file: name its module"),
    ],
)
def test_an_app_that_is_misspelled_is_named_and_not_called(
    cli: InProcess, app: str, name: str, told: str
) -> None:
    """A tool could do something if it were called for a loop."""
    refused = cli("run", "--app", app.replace(":agent", name), "look around")
    assert refused.code == 2
    assert told in refused.err.replace("\n", " ")


def test_a_chat_asks_for_approvals(cli: InProcess, app: str) -> None:
    """Approve, deny or edit, then the turn goes on in the same chat."""
    typed = ["book one", "approve", "book two", "deny", "No.", "book three", "edit"]
    said = cli("chat", "--app", app, stdin="\n".join([*typed, '{"city": "Faro"}', ""]))
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


@pytest.mark.parametrize("end", [RunAbandoned(reason="late"), RunParked(reason="", attempts=3)])
def test_a_chat_goes_on_before_a_turn_that_nobody_recovers(
    cli: InProcess, app: str, end: RunAbandoned | RunParked
) -> None:
    """One that was abandoned or parked is left out; else no line would ever be answered again."""
    cli("chat", "--app", app, stdin="Hello.\nbook it\n")
    with cli.ledger() as ledger:
        last = next(iter(ledger.runs(limit=1)))
        assert last.status == "waiting"
        ledger.append(last.run_id, end, ANY)
    again = cli("chat", "--app", app, stdin="Bye.\n")
    assert again.out == "Answer 2 to Bye.\n"
    assert str(last.run_id) in again.err


def test_a_decision_that_is_refused_is_asked_for_again(cli: InProcess, app: str) -> None:
    """Arguments that do not fit the schema do not end the chat."""
    typed = ["book it", "edit", '{"town": "Faro"}', "edit", '{"city": "Faro"}', "Bye.", ""]
    said = cli("chat", "--app", app, stdin="\n".join(typed))
    assert (said.code, said.out) == (0, "Answer 1 to book it\nAnswer 2 to Bye.\n")
    assert "Expected what its schema says" in said.err


def test_a_killed_chat_first_goes_on_with_its_last_turn(processes: Processes, app: str) -> None:
    """After kill -9 inside a tool the same command recovers the turn, then takes the next line."""
    killed = processes("chat", "--app", app, stdin="look around\n", DIE="in tool")
    assert killed.code == -signal.SIGKILL
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
    # A signal just before the read begins does not interrupt it: as at a keyboard, press again.
    code = None
    while code is None:
        waiting.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            code = waiting.wait(timeout=10)
    assert code == 130
    assert statuses(processes.db) == ["waiting"]
    again = processes("chat", "--app", app, stdin="approve\n")
    assert again.out == "Answer 1 to book it\n"


def test_recover_all_takes_the_runs_of_its_own_agent_only(processes: Processes, app: str) -> None:
    """Two agents that take text in one ledger, each killed: each recovers its own run."""
    apps = (app, app.replace(":agent", ":other"))
    for one in apps:
        killed = processes("run", "--app", one, "look around", DIE="in tool")
        assert killed.code == -signal.SIGKILL
    for number, one in enumerate(apps, start=1):
        recovered = processes("recover", "--all", "--app", one, "-o", "jsonl")
        assert recovered.code == 0
        assert [line["text"] for line in recovered.lines] == ["Answer 1 to look around"]
        assert statuses(processes.db).count("completed") == number
        assert processes("recover", "--all", "--app", one).err == "Nothing to recover.\n"
