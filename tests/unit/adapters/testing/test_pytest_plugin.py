"""The pytest plugin, in projects of its users: what passes, what fails, and what it says then."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from tests.projects import RUN, Outcome, Project, agent_text, recorded_history
from tests.shop_agent import Order, loop
from turnledger.ledger import Ledger, export_runs, new_run_id

TEST = """\
from shop import loop


def test_bug(turnledger_replay):
    turnledger_replay("histories/test_bug.jsonl", loop)
"""


@pytest.fixture(scope="module")
def history() -> bytes:
    """A run of the agent as a file."""
    return recorded_history()


@pytest.fixture
def project(tmp_path: Path, history: bytes) -> Project:
    """A project with the agent as it was, the history and its test."""
    project = Project(tmp_path)
    project.write("tests/test_bug.py", TEST)
    project.write("tests/histories/test_bug.jsonl", history)
    return project


def using(call: str, *before: str) -> str:
    """A module with one test that makes this call."""
    head = "\n".join(("from shop import *", *before))
    return f"{head}\n\n\ndef test_bug(turnledger_replay):\n    {call}\n"


# --- passing -----------------------------------------------------------------------------------


def test_a_history_passes_on_the_code_that_it_is_of(project: Project) -> None:
    """However strict the project is; no tool is called, and nothing is written."""
    project.write(
        "tests/test_bug.py",
        using(
            'replayed, = turnledger_replay("histories/test_bug.jsonl", loop)\n'
            "    assert CALLED == []\n"
            "    assert (replayed.version, replayed.state.summary.status) == (28, 'completed')\n"
            '    assert replayed.state.slices.all("Basket")[-1].total == 5'
        ),
    )
    before = sorted(project.folder.rglob("*.jsonl"))
    done = project.pytest("-q")
    assert (done.code, "1 passed" in done.out) == (0, True), done.out
    assert sorted(project.folder.rglob("*.jsonl")) == before
    assert not list(project.folder.rglob("*.db"))


def test_the_ways_to_say_what_is_run_again(project: Project, history: bytes) -> None:
    """A path or text, whole or from here; a factory with a ledger or without; a run; a part."""
    path = repr(str(project.folder / "tests/histories/test_bug.jsonl"))
    project.write(
        "tests/test_ways.py",
        f"""\
from pathlib import Path
from uuid import UUID

import pytest
from shop import *

HISTORY = "histories/test_bug.jsonl"


class Built:
    def __call__(self, ledger):
        return loop(ledger)


def without_a_ledger():
    return loop(Ledger.open("memory://"))


def with_options(ledger=None, *, fast=False):
    assert ledger is not None
    return loop(ledger)


@pytest.mark.parametrize("history", [HISTORY, Path(HISTORY), Path({path}), {path}])
def test_paths(turnledger_replay, history):
    turnledger_replay(history, loop)


@pytest.mark.parametrize("factory", [without_a_ledger, with_options, Built(), lambda l: loop(l)])
def test_factories(turnledger_replay, factory):
    turnledger_replay(HISTORY, factory)


@pytest.mark.parametrize("run", ["{RUN}", UUID("{RUN}"), "{str(RUN).upper()}"])
def test_runs(turnledger_replay, run):
    turnledger_replay(HISTORY, loop, run=run)


def test_a_part(turnledger_replay):
    replayed, = turnledger_replay(HISTORY, loop, until=13)
    assert replayed.version == 13


def test_twice(turnledger_replay):
    turnledger_replay(HISTORY, loop)
    turnledger_replay(HISTORY, loop)
""",
    )
    done = project.pytest("-q", "tests/test_ways.py")
    assert "13 passed" in done.out, done.out


def test_every_run_of_the_loops_kind_is_run_again(tmp_path: Path) -> None:
    """Forks too, whose request is their parent's; each with a loop of its own."""
    content, other = BytesIO(), new_run_id()
    with Ledger.open("memory://") as ledger:
        for run in (RUN, other):
            loop(ledger).execute(Order("tea"), run_id=run)
        child = ledger.fork(other, 15)
        loop(ledger).recover(child)
        export_runs(ledger, content)
    project = Project(tmp_path)
    project.write("histories/test_bug.jsonl", content.getvalue())
    project.write(
        "test_bug.py",
        using(
            'found = turnledger_replay("histories/test_bug.jsonl", counted)\n'
            f"    assert [str(one.run_id) for one in found] == ['{RUN}', '{other}', '{child}']\n"
            "    assert len(set(map(id, BUILT))) == 3",
            "BUILT = []",
            "def counted(ledger):",
            "    BUILT.append(loop(ledger))",
            "    return BUILT[-1]",
        ),
    )
    done = project.pytest("-q")
    assert done.code == 0, done.out
    project.write("test_bug.py", TEST.replace(", loop)", ", loop, until=20)"))
    assert "until=20 is a version of one run: say run=." in project.pytest("-q").out


def test_a_folder_of_histories_is_one_test(project: Project, history: bytes) -> None:
    """With the name of each as its id, also when workers share them."""
    project.write("tests/histories/another.jsonl", history)
    project.write("tests/histories/notes.txt", "not one of them")
    project.write(
        "tests/test_bug.py",
        "import pytest\nfrom turnledger.adapters.testing.pytest_plugin import histories\n"
        "from shop import loop\n\n\n"
        '@pytest.mark.parametrize("history", histories("histories"))\n'
        "def test_history(history, turnledger_replay):\n"
        "    turnledger_replay(history, loop)\n",
    )
    listed = project.pytest("-q", "--collect-only")
    assert "test_history[another]\ntests/test_bug.py::test_history[test_bug]\n" in listed.out
    done = project.pytest("-q", "-n", "2")
    assert "2 passed" in done.out, done.out


def test_a_folder_without_histories_is_an_error(project: Project) -> None:
    """A test of nothing would be skipped, and never fail."""
    project.write(
        "tests/test_bug.py",
        "from turnledger.adapters.testing.pytest_plugin import histories\n\n"
        'histories("elsewhere")\n',
    )
    done = project.pytest("-q")
    assert done.code == 2
    assert "There are no histories (*.jsonl) in " in done.out
    assert "Traceback" not in done.out


# --- divergences -------------------------------------------------------------------------------

STOCK = 'Tool[Item, Any](name="stock", description="Look up a stock.", handler=stock),'
PRICE = 'Tool[Item, Any](name="price", description="Look up a price.", handler=price),'
TEMPLATE = 'template="Sell ${item}."'
# What was changed in the agent, and what is said about it.
CHANGES: dict[str, tuple[tuple[str, str], list[str]]] = {
    "prompt_text": (
        (TEMPLATE, 'template="Buy ${item}."'),
        ["version 5 (evaluation.started): prompt text changed", "-Sell tea.\n+Buy tea."],
    ),
    "prompt": (('key="sell"', 'key="buy"'), ["prompt changed: shop/sell was recorded"]),
    "tool_schema": (
        ("class Item:\n    item: str", "class Item:\n    item: str\n    size: int = 1"),
        ["version 5 (evaluation.started): tool schema changed: price, stock"],
    ),
    "tool_removed": ((STOCK, ""), ["tool removed: stock"]),
    "tool_added": ((STOCK, STOCK + STOCK.replace("stock", "shelf", 2)), ["tool added: shelf"]),
    "tool_renamed": (
        ('name="stock"', 'name="shelf"'),
        ["tool renamed: stock is shelf now", "Give the tool its old name"],
    ),
    "tool_order": (
        (f"{PRICE}\n            {STOCK}", f"{STOCK}{PRICE}"),
        ["tool order changed: stock, price"],
    ),
    "session_state": (
        ("seed([Basket()])", "seed([Basket(), Basket()])"),
        ["version 3 (slice.event_applied): session state changed: Basket"],
    ),
    "reducer": (
        ("values[-1].total + event.price", "values[-1].total - event.price"),
        ["version 14 (checkpoint.reached): reducer changed: of Basket", '"total": -5'],
    ),
    "randomness": (
        (TEMPLATE, "template=f'Sell ${{item}}. {__import__(\"time\").perf_counter_ns()}'"),
        ["time or randomness used", "read no clock"],
    ),
    "failure": (
        ("        tools = [", "        raise ValueError(request)\n        tools = ["),
        [
            "your code raised ValueError at shop_failure.py:",
            "(create_prompt)",
            "Traceback (most recent call last):",
            "raise ValueError(request)",
        ],
    ),
    "request": (
        ("wants.", 'wants."""\n\n    colour: str\n    """'),
        ["Invalid request of run", "expected a Order", "colour", "can't be run again."],
    ),
}


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory, history: bytes) -> Outcome:
    """A project with a changed agent and a test for each kind of change."""
    project = Project(tmp_path_factory.mktemp("diverged"))
    project.write("histories/bug.jsonl", history)
    tests = ""
    for name, (change, _) in CHANGES.items():
        project.write(f"shop_{name}.py", agent_text(change))
        tests += (
            f"def test_{name}(turnledger_replay):\n    from shop_{name} import loop\n"
            f'    turnledger_replay("histories/bug.jsonl", loop)\n\n\n'
        )
    project.write("test_bugs.py", tests)
    return project.pytest()


@pytest.mark.parametrize("name", CHANGES)
def test_each_kind_of_divergence_is_told(diverged: Outcome, name: str) -> None:
    """The event, the cause, what to do, the difference; the file and run; none of our frames."""
    report = diverged.report(f"test_{name}")
    for words in CHANGES[name][1]:
        assert words in report, report
    assert f"un {RUN} of histories/bug.jsonl" in report
    assert ("Traceback" in report) == (name == "failure")
    assert "adapters/" not in report
    assert "runtime/" not in report
    if name != "request":
        assert name == "failure" or "--- recorded\n+++ found\n" in report
        assert (
            f"turnledger import histories/bug.jsonl --db bug.db && turnledger log {RUN}" in report
        )


def test_the_list_of_failures_begins_with_the_event(diverged: Outcome) -> None:
    """Where there is room for a line only, it says what matters."""
    assert f"{len(CHANGES)} failed" in diverged.out
    line = next(
        x for x in diverged.out.splitlines() if x.startswith("FAILED test_bugs.py::test_re")
    )
    assert "- Failed: version 14 (" in line


def test_escape_codes_of_a_record_do_not_reach_the_terminal(project: Project) -> None:
    """They are written out, as everywhere."""
    project.write("shop.py", agent_text((TEMPLATE, 'template="Sell ${item}.\\x1b[2J\\u202e"')))
    done = project.pytest("--color=no")
    assert "+Sell tea.\\x1b[2J\\u202e" in done.out
    assert "\x1b" not in done.out


# --- what is no divergence ---------------------------------------------------------------------


DAMAGES = {
    "changed": (b'"item":"tea"', b'"item":"gin"', "digest"),
    "cut": (b'{"end":', b'{"eins":', "line 32"),
    "pointer": (b'{"turnledger":1', b"version https://git-lfs.github.com/spec/v1", "not an export"),
}


def test_a_damaged_history_says_nothing_about_the_code(project: Project, history: bytes) -> None:
    """It fails as what it is, and not as a divergence."""
    tests = "from shop import loop\n"
    for name, (old, new, _) in DAMAGES.items():
        assert old in history
        project.write(f"tests/histories/{name}.jsonl", history.replace(old, new, 1))
        tests += f"def test_{name}(turnledger_replay):\n"
        tests += f'    turnledger_replay("histories/{name}.jsonl", loop)\n'
    project.write("tests/test_bug.py", tests)
    done = project.pytest()
    for name, (_, _, said) in DAMAGES.items():
        report = done.report(f"test_{name}")
        assert f"tests/histories/{name}.jsonl is damaged" in report
        assert said in report
        assert "This says nothing about the code." in report
        assert "differs from its record" not in report


WRONG_CALLS = {
    'turnledger_replay("histories/none.jsonl", loop)': "tests/histories/none.jsonl: No such file",
    'turnledger_replay("histories", loop)': "tests/histories: Is a directory",
    'turnledger_replay("histories/test_bug.jsonl", loop(None))': "got a Shop",
    'turnledger_replay("histories/test_bug.jsonl", lambda: 5)': "gave a int, not a MainLoop",
    'turnledger_replay("histories/test_bug.jsonl", other)': (
        "has no run of this loop, which takes Refund. What is there was asked for: Order."
    ),
    f'turnledger_replay("histories/test_bug.jsonl", other, run="{RUN}")': (
        "has no run of this loop, which takes Refund. The run was asked for: Order."
    ),
    'turnledger_replay("histories/test_bug.jsonl", loop, run="x")': "'x'",
    f'turnledger_replay("histories/test_bug.jsonl", loop, run="{new_run_id()}")': (
        f"It has: {RUN}."
    ),
    'turnledger_replay("histories/test_bug.jsonl", loop, until=0)': "it has 1 to 28.",
    'turnledger_replay("histories/test_bug.jsonl", loop, until=29)': "it has 1 to 28.",
}


def test_what_can_not_be_run_again_is_said_in_a_sentence(project: Project) -> None:
    """No file, no factory, no run, no such version: the test fails, and never passes for that."""
    tests = (
        "from shop import *\n\n\nclass Refund:\n    pass\n\n\n"
        "class Other(Shop):\n    def __init__(self, ledger):\n"
        "        super().__init__(adapter=ScriptedAdapter([]), bus=InProcessEventBus(),\n"
        "            ledger=ledger, request_type=Refund)\n\n\nother = Other\n\n\n"
    )
    for place, call in enumerate(WRONG_CALLS):
        tests += f"def test_{place}(turnledger_replay):\n    {call}\n\n\n"
    project.write("tests/test_bug.py", tests)
    done = project.pytest()
    assert f"{len(WRONG_CALLS)} failed" in done.out, done.out
    for place, said in enumerate(WRONG_CALLS.values()):
        report = done.report(f"test_{place}")
        assert said in report, report
        assert "Traceback" not in report


def test_an_error_of_the_factory_is_shown_where_it_is(project: Project) -> None:
    """It is the user's own: with a traceback that leads there."""
    project.write(
        "tests/test_bug.py",
        using('turnledger_replay("histories/test_bug.jsonl", broken)', "def broken(): 1 / 0"),
    )
    report = project.pytest().report("test_bug")
    assert "ZeroDivisionError" in report
    assert "def broken(): 1 / 0" in report


# --- no network --------------------------------------------------------------------------------

ASKING = """\
import socket
from shop import *


def ask():
    with socket.socket() as asking:
        asking.connect(("127.0.0.1", 9))


class Curious(Shop):
    def create_prompt(self, request):
        try:
            ask()
        except {caught}:
            pass
        return super().create_prompt(request)


def curious(ledger):
    return Curious(adapter=ScriptedAdapter(REPLIES), bus=InProcessEventBus(), ledger=ledger)


def asking_once(ledger):
    try:
        ask()
    except Exception:
        pass
    return loop(ledger)


def asking(ledger):
    ask()
    return loop(ledger)


def test_bug(turnledger_replay):
    turnledger_replay("histories/test_bug.jsonl", {factory})


def test_afterwards():
    try:
        ask()
    except ConnectionRefusedError:
        pass
"""


@pytest.mark.parametrize("caught", ["Exception", "ZeroDivisionError"])
def test_code_that_asks_for_the_network_fails(project: Project, caught: str) -> None:
    """Even if it takes no offence at the error; the line that asked is named. Then all is well."""
    project.write("tests/test_bug.py", ASKING.format(caught=caught, factory="curious"))
    done = project.pytest()
    report = done.report("test_bug")
    assert "asked for the network" in report, done
    assert "connect(('127.0.0.1', 9)) at tests/test_bug.py:7, in ask" in report
    assert ("your code raised NetworkRefusedError" in report) == (caught == "ZeroDivisionError")
    assert "1 failed, 1 passed" in done.out


def test_building_a_loop_has_no_network_either(project: Project) -> None:
    """Whoever can do without it passes, whoever can't sees where it was wanted."""
    project.write("tests/test_bug.py", ASKING.format(caught="OSError", factory="asking_once"))
    assert "2 passed" in project.pytest().out
    project.write("tests/test_bug.py", ASKING.format(caught="OSError", factory="asking"))
    report = project.pytest().report("test_bug")
    assert "There is no network while a run is replayed" in report


# --- those who don't use it --------------------------------------------------------------------


def test_a_project_that_does_not_use_it_notices_nothing(project: Project) -> None:
    """It is there, adds one fixture, and nothing of the package is imported."""
    project.write(
        "tests/test_bug.py",
        "import sys\n\n\ndef test_light(pytestconfig):\n"
        '    assert pytestconfig.pluginmanager.has_plugin("turnledger")\n'
        '    heavy = {"turnledger.ledger", "turnledger.projections", "turnledger.runtime"}\n'
        '    heavy |= {"msgspec", "pydantic", "click"}\n'
        "    assert not heavy & set(sys.modules)\n",
    )
    done = project.pytest("-q")
    assert "1 passed" in done.out, done.out
    shown = project.pytest("--fixtures", "-q").out
    assert shown.count("adapters/testing/pytest_plugin.py") == 1
    assert "Runs a recorded history again on today's code" in shown


def test_it_can_be_left_out(project: Project) -> None:
    """As any plugin."""
    done = project.pytest("-p", "no:turnledger")
    assert "fixture 'turnledger_replay' not found" in done.out
