"""`export --test`: a run becomes a test, in two files or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, InProcess, Outcome
from tests.projects import RUN, agent_text
from tests.shop_agent import CALLED, Order, loop
from turnledger.adapters.cli.exchange import bug_test as bug_tests
from turnledger.ledger import NEW, Ledger, RunStarted, new_run_id

APP = "tests.shop_agent:loop"


def no_loop() -> str:
    """A factory that returns no loop."""
    return "no loop"


def broken() -> None:
    """A factory that raises."""
    raise ZeroDivisionError("no keys")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that the command is called in."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    # The command puts the current folder there.
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


@pytest.fixture
def run(cli: InProcess, here: Path) -> UUID:
    """A run in the ledger."""
    with cli.ledger() as ledger:
        loop(ledger).execute(Order("tea"), run_id=RUN)
    return RUN


def files(folder: Path) -> dict[str, str]:
    """All that is in a folder, hidden files and folders too."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else ""
        for path in folder.rglob("*")
    }


def export(
    cli: InProcess, *more: object, app: str = APP, test: str = "tests/test_bug.py"
) -> Outcome:
    return cli("export", RUN, "--test", test, "--app", app, *more)


def test_a_run_becomes_a_history_and_a_test(cli: InProcess, run: UUID, here: Path) -> None:
    """The history is the export, the test has a few lines, and no tool was called for them."""
    del CALLED[:]
    done = export(cli)
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "Wrote tests/test_bug.py and tests/histories/test_bug.jsonl (28 records).\n"
        "The test passes with your current code.\n"
    )
    text = (
        "from tests.shop_agent import loop\n\n\n"
        "def test_bug(turnledger_replay):\n"
        f'    """Run {RUN} replays without a divergence."""\n'
        '    turnledger_replay("histories/test_bug.jsonl", loop)\n'
    )
    assert files(here) == {
        "tests": "",
        "tests/test_bug.py": text,
        "tests/histories": "",
        "tests/histories/test_bug.jsonl": cli("export", RUN).out,
    }
    assert CALLED == []


def test_a_run_with_ancestors_is_named(cli: InProcess, run: UUID, here: Path) -> None:
    """They are in the file, and what became of them is not what is tested."""
    with cli.ledger() as ledger:
        child = ledger.fork(run, 15)
        loop(ledger).recover(child)
    done = cli("export", child, "--test", "test_bug.py", "--app", APP)
    assert done.code == 0, done.err
    assert f'        run="{child}",\n    )\n' in Path("test_bug.py").read_text()


@pytest.mark.parametrize(
    ("test", "app", "function"),
    [
        ("tests/test_bug.py", APP, "test_bug"),
        ("bug_test.py", APP, "test_bug_test"),
        ("deep/er/test-the bug 7.py", APP, "test_the_bug_7"),
        ("test_bug.py", "odd:test_loop", "test_bug"),
    ],
)
def test_what_is_written_is_as_people_write_it(
    cli: InProcess, run: UUID, here: Path, test: str, app: str, function: str
) -> None:
    """Whatever the names are: formatted, without a complaint, and one test for pytest."""
    Path("odd.py").write_text("from tests.shop_agent import loop as test_loop\n")
    done = export(cli, test=test, app=app)
    sys.modules.pop("odd", None)
    assert done.code == 0, done.err
    ruff = [sys.executable, "-m", "ruff"]
    for check in (["format", "--check"], ["check", "--select", "E,F,I"]):
        subprocess.run([*ruff, *check, "--isolated", "--no-cache", test], check=True)
    text = Path(test).read_text()
    assert f"def {function}(turnledger_replay):" in text
    assert text.count("test_loop") <= 1


def test_a_name_that_pytest_does_not_look_for_is_told(
    cli: InProcess, run: UUID, here: Path
) -> None:
    """The test is written: a project may look for others."""
    done = export(cli, test="check_bug.py")
    assert done.code == 0
    assert "pytest collects test_*.py and *_test.py" in done.err
    assert "def test_check_bug(" in Path("check_bug.py").read_text()


def test_the_app_has_to_be_said(cli: InProcess, run: UUID, here: Path) -> None:
    """A run does not know what code it was run by."""
    done = cli("export", RUN, "--test", "test_bug.py")
    assert done.code == 2
    assert "Missing option '--app'" in done.err
    assert files(here) == {}


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("shop", "Invalid app"),
        ("shop:", "Invalid app"),
        ("shop:a.b", "Invalid app"),
        ("shop;import os:loop", "Invalid app"),
        ("shop:import", "Invalid app"),
        ("nowhere.at.all:loop", "Can't import 'nowhere.at.all:loop': ModuleNotFoundError"),
        ("tests.shop_agent:nothing", "Invalid app"),
        ("tests.e2e.test_cli_bug_test:no_loop", "gave a str, not a MainLoop"),
        ("tests.e2e.test_cli_bug_test:broken", "failed: ZeroDivisionError: no keys"),
        ("tests.e2e.agent_for_cli:loop", "takes Bill. The run was asked for: Order."),
    ],
)
def test_an_app_that_does_not_fit_is_refused(
    cli: InProcess, run: UUID, here: Path, app: str, said: str
) -> None:
    """Before anything is written."""
    done = export(cli, app=app)
    assert done.code == 2, done.err
    assert said in done.err
    assert files(here) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--all", "--test", "test_bug.py", "--app", APP),
        (RUN, NOBODY, "--test", "test_bug.py", "--app", APP),
        (RUN, "--test", "test_bug.py", "--app", APP, "-O", "run.jsonl"),
        (RUN, "--test", "test_bug.py", "--app", APP, "--format", "anthropic"),
        (RUN, "--test", "test_bug.py", "--app", APP, "--model", "m"),
        (RUN, "--test", "test_bug.txt", "--app", APP),
        (RUN, "--test", ".", "--app", APP),
        (RUN, "--app", APP),
        (RUN, "--force"),
    ],
)
def test_options_that_do_not_go_together(
    cli: InProcess, run: UUID, here: Path, arguments: tuple[object, ...]
) -> None:
    """They are a usage error, and nothing is written."""
    assert cli("export", *arguments).code == 2
    assert files(here) == {}


def test_no_such_run_writes_nothing(cli: InProcess, run: UUID, here: Path) -> None:
    """Exit 3; also for a run without a request."""
    assert cli("export", new_run_id(), "--test", "t/test_bug.py", "--app", APP).code == 3
    with cli.ledger() as ledger:
        bare = new_run_id()
        ledger.append(bare, [RunStarted()], NEW)
    done = cli("export", bare, "--test", "t/test_bug.py", "--app", APP)
    assert (done.code, files(here)) == (2, {})
    assert "which takes Order. The run was asked for: nothing." in done.err


@pytest.mark.parametrize("there", ["test_bug.py", "histories/test_bug.jsonl"])
def test_what_is_there_is_not_replaced(cli: InProcess, run: UUID, here: Path, there: str) -> None:
    """Unless --force says so; the other file does not appear either."""
    path = here / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = files(here)
    done = export(cli, test="test_bug.py")
    assert (done.code, files(here)) == (1, before)
    assert f"Error: {there} exists. --force overwrites it.\n" == done.err
    assert export(cli, "--force", test="test_bug.py").code == 0
    after = files(here)
    assert "mine" not in after.values()
    assert sorted(after) == ["histories", "histories/test_bug.jsonl", "test_bug.py"]


def test_a_history_that_is_the_same_may_stay(cli: InProcess, run: UUID, here: Path) -> None:
    """Where a command was killed between the two files, it is given again and that is all."""
    assert export(cli, test="test_bug.py").code == 0
    before = files(here)
    Path("test_bug.py").unlink()
    assert export(cli, test="test_bug.py").code == 0
    assert files(here) == before


@pytest.mark.parametrize("force", [False, True])
def test_if_one_file_can_not_be_put_there_neither_is(
    cli: InProcess, run: UUID, here: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """What was there is there again, to the byte; folders that were made are gone."""
    if force:
        assert export(cli).code == 0
        Path("tests/test_bug.py").write_text("mine")
        Path("tests/histories/test_bug.jsonl").write_text("mine too")
    before = files(here)
    replace, link = Path.replace, os.link

    def failing_replace(self: Path, target: Path) -> Path:
        if self.name.startswith(".test_bug.py.") and self.suffix == ".part":
            raise PermissionError("not here")
        return replace(self, target)

    def failing_link(source: Path, target: Path) -> None:
        if Path(target).suffix == ".py":
            raise PermissionError("not here")
        link(source, target)

    monkeypatch.setattr(Path, "replace", failing_replace)
    monkeypatch.setattr(bug_tests.os, "link", failing_link)
    done = export(cli, *(["--force"] if force else []))
    assert (done.code, done.err) == (1, "Error: not here\n")
    assert files(here) == before


def test_a_file_that_comes_in_between_is_not_replaced(
    cli: InProcess, run: UUID, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that appears meanwhile stays, and nothing of ours is left."""
    link = os.link

    def slower(source: Path, target: Path) -> None:
        if Path(target).suffix == ".py":
            Path(target).write_text("theirs")
        link(source, target)

    monkeypatch.setattr(bug_tests.os, "link", slower)
    done = export(cli, test="test_bug.py")
    assert done.code == 1
    assert "test_bug.py exists" in done.err
    assert files(here) == {"test_bug.py": "theirs"}


def test_a_file_system_without_links_does(
    cli: InProcess, run: UUID, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are renamed there."""

    def no_links(source: Path, target: Path) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(bug_tests.os, "link", no_links)
    assert export(cli, test="test_bug.py").code == 0
    assert sorted(files(here)) == ["histories", "histories/test_bug.jsonl", "test_bug.py"]


def test_a_test_that_fails_today_is_written_and_that_is_told(
    cli: InProcess, run: UUID, here: Path
) -> None:
    """A bug that is still there is what one wants a test of."""
    text = agent_text(("Sell ${item}.", "Buy ${item}."))
    Path("changed_shop.py").write_text(text)
    done = export(cli, app="changed_shop:loop")
    sys.modules.pop("changed_shop")
    assert done.code == 0
    assert "The test fails with your current code: version 5 (evaluation.started)" in done.err
    assert "prompt text changed" in done.err
    assert Path("tests/test_bug.py").exists()


def test_the_ledger_is_not_written_to(cli: InProcess, run: UUID, here: Path) -> None:
    """Not even a claim: the loop gets a ledger of its own."""
    before = cli("export", "--all").out
    assert export(cli).code == 0
    assert cli("export", "--all").out == before
    with Ledger.open(cli.db) as ledger:
        assert ledger.run(run).epoch == 1
