"""The table of mutants, from which docs/requirements.md is made, and the runner of mutants."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import running
from tests.mutants.table import ROOT, Line, Mutant, problems, read_table

LINES = read_table()


def test_every_line_has_mutants_and_none_is_stale() -> None:
    """Each line is in the table once, and each mutant's text is in its file once."""
    assert problems(LINES) == []


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of a test file's functions."""
    if not path.exists():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_the_tests_of_every_line_exist() -> None:
    """Each test that is named is a function in that file."""
    named = (test.partition("::") for line in LINES.values() for test in line.tests)
    lost = {name for path, _, name in named if name.split("[")[0] not in functions(ROOT / path)}
    assert lost == set()


def mutant(text: str, becomes: str, *tests: str) -> Mutant:
    return Mutant("S0-1", 1, "src/sums.py", text, becomes, tests)


ADDS = "tests/test_sums.py::test_adds"
DIVIDES = "tests/test_sums.py::test_divides"
STALE = (
    "is stale: its text occurs 0 times in Makefile, expected once. "
    "Choose another text in tests/mutants."
)


def test_a_faulty_table_is_told() -> None:
    """A stale mutant, the same change twice, a line without mutants and lost lines are named."""
    stale = Mutant("S0-1", 1, "Makefile", "no such text", "", (ADDS,))
    again = Mutant("S0-1", 2, "Makefile", "no such text", "", (ADDS,))
    faulty = {"S0-1": Line("S0-1", "", (stale, again)), "S0-2": Line("S0-2", "")}
    lost, *others = problems(faulty)
    assert "X29" in lost
    assert others == [
        f"S0-1.1 {STALE}",
        "S0-1.2 is the same change as S0-1.1",
        f"S0-1.2 {STALE}",
        "S0-2 needs mutants, or the reason why it is missing",
    ]


@pytest.mark.process
def test_a_mutant_is_caught_if_all_its_tests_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that passes, or that can't be run, has not noticed; the repository stays as it is."""
    source = "def add(a, b):\n    return a + b\n\n\ndef divide(a, b):\n    return a / b\n"
    repository = tmp_path / "repository"
    for name, text in {
        "src/sums.py": source,
        "tests/test_sums.py": "from sums import add, divide\n\n\n"
        "def test_adds():\n    assert add(1, 2) == 3\n\n\n"
        "def test_divides():\n    assert divide(4, 2) == 2\n",
    }.items():
        (repository / name).parent.mkdir(parents=True)
        (repository / name).write_text(text)
    monkeypatch.setattr(running, "ROOT", repository)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time
    told: list[str] = []
    with running.trees(1) as copies:
        assert running.failing_unchanged(copies, 1, [ADDS, DIVIDES]) == []
        for one in (
            mutant("a + b", "a - b", ADDS),
            mutant("a + b", "a - b", ADDS, DIVIDES),
            mutant("a + b", "a +", ADDS),
        ):
            running.run(copies, 1, [one], lambda _, wrong: told.append(wrong))
    assert told[:2] == ["", f"not noticed by {DIVIDES}"]
    assert told[2].startswith("its tests could not be run")
    assert (repository / "src/sums.py").read_text() == source
