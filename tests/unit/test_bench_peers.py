"""The runner of `make bench-peers`: its table, its peers, and ours through the interface."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as runner
from benchmarks.peers.__main__ import ROWS, Bench, Figure, Results, Row
from benchmarks.peers.ours import OurSteps
from benchmarks.peers.peer import texts
from benchmarks.peers.worker import PEERS

FOLDER = Path(runner.__file__).parent
LEDGER, SESSION = ROWS[0], ROWS[1]


def row(peer: str) -> Row:
    return next(row for row in ROWS if row.peer == peer)


def test_every_peer_has_its_file_and_its_row() -> None:
    """A peer that is written and not measured, or measured and not written, is noticed."""
    assert {row.peer for row in ROWS} == set(PEERS)
    for place in PEERS.values():
        module, kind = place.split(":")
        tree = ast.parse((FOLDER / f"{module}.py").read_text())
        (found,) = (
            node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind
        )
        methods = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
        assert methods >= {"begin", "go_on", "load", "pay", "recover"}
    both = {row.peer for row in ROWS if row.postgres}
    assert both == {"ours", "ours-steps", "ours-agent", "dbos", "langgraph"}
    for group in {row.group for row in ROWS}:
        assert [row.ours for row in ROWS if row.group == group].count(True) == 1


def test_texts_are_the_same_everywhere() -> None:
    """All peers write the same texts, of 500 to 800 bytes, wherever a process begins."""
    assert texts(3, 2) == texts(0, 5)[3:]
    assert all(500 <= len(text.encode()) <= 800 for text in texts(0, 200))


def test_a_figure_is_a_median_with_its_spread() -> None:
    """One slow round does not move a figure, and shows in its spread."""
    figure = Figure.of([0.004, 0.001, 0.002])
    assert (figure.median, figure.shown(1e-3)) == (0.002, "2.00 ± 1.50")
    assert Figure(1, 0.25).is_near(Figure(1.5, 0.25))
    assert not Figure(1, 0.25).is_near(Figure(1.5, 0.125))
    assert Figure(1234.5, 0).shown(1) == "1,234"


def test_the_table_has_every_row_and_says_what_was_not_reached() -> None:
    """A peer without figures is in the table all the same."""
    results = Results({(LEDGER, 1_000, "append cpu"): [0.002]}, {SESSION: "2, answers"})
    lines = results.table().splitlines()
    assert len(lines) == 2 + len(ROWS) * len(runner.ROUNDS)
    assert lines[2].startswith("| Turnledger, ledger | 1,000 | 2.00 | not reached |")
    assert lines[2].endswith(" no tools |")
    assert lines[4].endswith(" 2, answers |")
    assert len({line.count("|") for line in lines}) == 1


def test_a_peer_that_is_ahead_is_named() -> None:
    """Only beyond the spread of both, and only among those that do the same."""
    measured = (1_000, "append cpu")
    samples = {
        (LEDGER, *measured): [0.0019, 0.002, 0.0021],
        (row("eventsourcing"), *measured): [0.0018, 0.00195, 0.002],
        (row("dbos"), *measured): [0.001],
    }
    assert list(Results(samples, {}).not_first()) == []
    samples[SESSION, *measured] = [0.001]
    (line,) = Results(samples, {}).not_first()
    assert line.startswith("append, CPU ms, 1,000: Turnledger, ledger 2.00 ± 0.10; ")
    assert line.endswith("; ahead: OpenAI Agents SQLiteSession 1.00")


@pytest.mark.process
def test_ours_goes_through_a_round_and_a_payment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is resumed, loaded, appended to and killed; the agent's tool is entered once."""
    monkeypatch.setattr(runner, "ROUNDS", {40: 1})
    folder, memory = tmp_path / "disk", tmp_path / "memory"
    folder.mkdir()
    memory.mkdir()
    bench = Bench("no peer's python", folder, memory)
    bench.begin(LEDGER, 40)
    bench.measure(LEDGER, 40)
    bench.pay(row("ours-agent"))
    found = {measured: value for (_, _, measured), (value,) in bench.results.samples.items()}
    assert set(found) == {column[1] for column in runner.COLUMNS} - {"flushes"}
    assert min(found.values()) > 0
    assert bench.results.payments == {row("ours-agent"): "1, waits for a person"}
    assert list(memory.iterdir()) == []


def test_our_steps_go_on_where_they_were(tmp_path: Path) -> None:
    """A second process asks for the texts that the first one did not write, and loads all."""

    class End(BaseException):
        pass

    written: list[str] = []

    def next_text() -> str:
        if len(written) % 3 == 2:
            written.append("")
            raise End
        written.append(f"text {len(written)}")
        return written[-1]

    for _ in range(2):
        with pytest.raises(End):
            OurSteps(str(tmp_path / "runs.db")).go_on(next_text)
    reader = OurSteps(str(tmp_path / "runs.db"))
    assert reader.load() == [text for text in written if text]
    reader._reader.close()
