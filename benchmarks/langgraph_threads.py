"""Threads of a LangGraph agent: disk and cold load, against LangGraph's own SqliteSaver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.measuring import Result, speed
from tests.frameworks.langgraph.graphs import agent, config
from turnledger.langgraph import TurnledgerSaver
from turnledger.ledger import Ledger

STEPS = (100, 200, 400)


def measure(folder: Path) -> Iterator[Result]:
    ours = {steps: _ours(folder / f"ledger-{steps}", steps) for steps in STEPS}
    theirs = {steps: _theirs(folder / f"sqlite-{steps}", steps) for steps in STEPS}
    last = STEPS[-1]
    yield Result(
        f"kB a step of a LangGraph agent, {last} steps",
        ours[last] / 1000,
        10,
        at_least=False,
        detail=f"{_listed(ours)} kB at {', '.join(map(str, STEPS))}; SqliteSaver {_listed(theirs)}",
    )
    yield Result(
        f"the same against {STEPS[0]} steps", ours[last] / ours[STEPS[0]], 1.05, at_least=False
    )
    with Ledger.open(folder / f"ledger-{last}" / "runs.db") as ledger:
        url = str(folder / f"sqlite-{last}" / "runs.db")
        with SqliteSaver.from_conn_string(url) as saver:
            yield Result(
                f"cold load of {last} steps, against SqliteSaver",
                speed(_load(lambda: TurnledgerSaver(ledger)), _load(lambda: _cold(saver)), 101),
                1,
                at_least=True,
            )


def _cold(saver: SqliteSaver) -> SqliteSaver:
    return SqliteSaver(saver.conn)


def _load(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: make().get_tuple(config())


def _ours(folder: Path, steps: int) -> float:
    folder.mkdir()
    with Ledger.open(folder / "runs.db") as ledger:
        _run(TurnledgerSaver(ledger), steps)
    return _bytes(folder) / steps


def _theirs(folder: Path, steps: int) -> float:
    folder.mkdir()
    with SqliteSaver.from_conn_string(str(folder / "runs.db")) as saver:
        _run(saver, steps)
    return _bytes(folder) / steps


def _run(saver: Any, steps: int) -> None:
    """A model and a tool take turns, each with 800 bytes of text."""
    agent(saver, steps // 2).invoke({"messages": [HumanMessage("go")]}, config())


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _listed(sizes: dict[int, float]) -> str:
    return ", ".join(f"{size / 1000:.1f}" for size in sizes.values())
