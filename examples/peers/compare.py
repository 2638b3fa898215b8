"""Runs the agents of this folder against one strict server, whole and killed; prints a table.

    make peers

`--check PAGE` also compares the table with the one on a page. The peers run in an environment
of their own, `--python`; ours in this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.servers.serving import Answer, Asked, Call, Scripted, StrictServer
from tests.unit.docs_providers import OpenAI

HERE = Path(__file__).resolve().parent
NAMES = {
    "turnledger": "Turnledger",
    "pydantic_ai": "pydantic-ai",
    "pydantic_ai_dbos": "pydantic-ai with DBOS",
    "openai_agents": "OpenAI Agents SDK",
    "langgraph": "LangGraph",
}
ASKED = "My invoice is wrong."
TRIAGE = '{"priority": "high", "reply": "You get 20 EUR back."}'
HEADINGS = ("agent", "lines", "not blank", "`credit` entered", "model asked", "after the kill")


class TodaysOpenAI(OpenAI):
    """OpenAI's server as it is today: a default in a strict schema is taken, and was not once."""

    def check(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        known = json.loads(json.dumps(body))
        for tool in known.get("tools", ()):
            schema = tool.get("function", tool)["parameters"]
            for one in schema["properties"].values():
                one.pop("default", None)
        super().check(method, path, headers, known)


def answer(asked: Asked) -> Scripted:
    """Call `credit`, then give the output, as a call where the framework asks for that."""
    tools = [tool.get("function", tool)["name"] for tool in asked.body.get("tools", ())]
    assert ASKED in json.dumps(asked.body)
    if asked.turn == 1:
        return Answer(calls=(Call("credit", '{"euros": 20, "reason": "invoice"}'),))
    for output in tools:
        if output != "credit":
            return Answer(calls=(Call(output, TRIAGE),))
    wrapped = '"properties": {"response": ' in json.dumps(asked.body.get("text"))
    return Answer(f'{{"response": {TRIAGE}}}' if wrapped else TRIAGE)


def lines(name: str) -> tuple[int, int]:
    """The lines of an agent's file: all, and those that are not blank."""
    text = (HERE / f"{name}_agent.py").read_text().splitlines()
    return len(text), sum(bool(line.strip()) for line in text)


@dataclass
class Stage:
    """A folder, a server and the Python that an agent runs with."""

    name: str
    python: str
    folder: Path
    server: StrictServer

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
        environment = {
            **ours,
            "OPENAI_BASE_URL": f"{self.server.url}/v1",
            "OPENAI_API_KEY": "a key",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "NO_PROXY": "127.0.0.1",
        }
        return subprocess.run(
            [self.python, *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def whole(self) -> None:
        """The program as it stands answers."""
        done = self.run(str(HERE / f"{self.name}_agent.py"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[1:] == ["high", "36"], done.stdout

    def killed(self) -> tuple[int, int, str]:
        """Killed inside the tool, then gone on with: calls of the tool, of the model, the end."""
        dead = self.run(str(HERE / "killed.py"), self.name, "kill")
        assert dead.returncode == -9, dead.stderr
        after = self.run(str(HERE / "killed.py"), self.name, "go-on")
        assert after.returncode == 0, after.stderr
        entered = len((self.folder / "credits.txt").read_text().splitlines())
        said = after.stdout.strip()
        ended = "waits for a person" if said == "DecisionRequiredError" else f"answers {said!r}"
        return entered, len(self.server.asked), ended


def measure(name: str, python: str) -> tuple[str, ...]:
    """A row of the table."""
    with TemporaryDirectory() as folder, StrictServer(TodaysOpenAI(), answer) as server:
        Stage(name, python, Path(folder), server).whole()
        assert server.refused == []
    with TemporaryDirectory() as folder, StrictServer(TodaysOpenAI(), answer) as server:
        entered, asked, ended = Stage(name, python, Path(folder), server).killed()
        assert server.refused == []
    return (NAMES[name], *map(str, lines(name)), str(entered), str(asked), ended)


def table(rows: Iterator[tuple[str, ...]]) -> str:
    shown = [HEADINGS, ("---",) * len(HEADINGS), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in shown) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("--python", required=True, help="of the peers' environment")
    parser.add_argument("--check", type=Path, help="a page with the table")
    given = parser.parse_args()
    python = dict.fromkeys(NAMES, given.python) | {"turnledger": sys.executable}
    measured = table(measure(name, str(Path(python[name]).absolute())) for name in NAMES)
    print(measured, end="")
    if given.check and measured not in given.check.read_text():
        sys.exit(f"{given.check} has another table.")


if __name__ == "__main__":
    main()
