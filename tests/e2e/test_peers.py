"""The same agent in other frameworks: ours runs here, theirs by `make peers`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from examples.peers.compare import HERE, NAMES, lines, measure
from tests.unit.test_docs import PEERS, blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/compared-with-other-agents.md").read_text()


def test_our_agent_has_at_most_22_lines_and_is_on_the_page() -> None:
    """Blank lines included; the page shows the very files, each once."""
    assert lines("turnledger")[0] <= 22
    shown = [block.text for block in blocks(PAGE) if block.kind in ("python", "py")]
    assert sorted(shown) == sorted(file.read_text() for file in PEERS)
    assert len(shown) == len(NAMES) == 5


def test_our_agent_answers_and_credits_once_although_it_is_killed() -> None:
    """On the strict server, in processes of its own; the page's row is what is measured."""
    row = measure("turnledger", sys.executable)
    assert row == ("Turnledger", "21", "14", "1", "1", "waits for a person")
    assert f"| {' | '.join(row)} |" in PAGE


def test_the_page_counts_lines_as_the_script_does() -> None:
    """For the others too, whose calls only `make peers` can count."""
    for name, title in NAMES.items():
        assert f"| {title} | {' | '.join(map(str, lines(name)))} | " in PAGE


def test_the_peers_environment_is_pinned() -> None:
    """Every package of it has one version, and `make peers` installs nothing else."""
    pins = (HERE / "requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line) for line in pins)
    names = {line.partition("==")[0] for line in pins}
    assert {"pydantic-ai-slim", "openai-agents", "langgraph", "langchain", "dbos"} <= names
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("$(PEERS)/.installed:")[2].partition("\n\n")[0]
    assert re.findall(r"pip install (.*)", recipe) == [
        "--quiet --requirement examples/peers/requirements.txt"
    ]
