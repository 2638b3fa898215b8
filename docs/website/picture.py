"""Draws docs/tutorial/killed-run.svg: the events of a run whose worker was killed inside a tool.

`python -m docs.website.picture` does what it shows: one process is killed, a person decides,
another process goes on; then each event becomes a line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from turnledger import Agent, Ledger, Record, Reply, ToolCall, tool
from turnledger.ledger import ANY, ToolCallDecided
from turnledger.runtime import DecisionRequiredError

FILE = Path(__file__).parents[1] / "tutorial" / "killed-run.svg"
# Left out: what tells a reader of the picture nothing.
LEFT_OUT = ("run.claimed", "checkpoint.", "evaluation.", "model.")
COLOURS = {"run": "#8ab4f8", "message": "#e8eaed", "tool_call": "#81c995"}
ALARMING = {"tool_call.in_doubt", "run.waiting"}
LINE, LEFT, WIDTH = 22, 24, 860


@tool(on_interrupt="ask")
def credit(euros: int) -> str:
    """Credit an amount to the customer."""
    if os.environ.get("DIES_INSIDE"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"Credited {euros} EUR."


REPLIES = [
    Reply(tool_calls=(ToolCall("call_1", "credit", '{"euros": 20}'),)),
    Reply("You get 20 EUR back."),
]
agent = Agent("support/triage", model=REPLIES, instructions="Triage the ticket.", tools=[credit])


def recorded(file: Path) -> list[Record]:
    """Kill a process inside the tool, decide, go on in this one, and read the run."""
    environment = {**os.environ, "DIES_INSIDE": "1"}
    command = [sys.executable, "-m", "docs.website.picture", str(file)]
    dead = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2])
    assert dead.returncode == -signal.SIGKILL
    with Ledger.open(file) as ledger:
        (run,) = agent.list_recoverable(ledger=ledger)
        try:
            agent.recover(run, ledger=ledger)
        except DecisionRequiredError:
            said = ToolCallDecided(
                call_id="call_1", decision="completed", text="Credited 20 EUR.", decided_by="ann"
            )
            ledger.append(run.run_id, said, ANY)
        agent.recover(run.run_id, ledger=ledger)
        return list(ledger.read(run.run_id))


def summary(record: Record) -> str:
    """What an event says, in a few words."""
    match record.tag:
        case "run.started":
            return "support/triage: My invoice is wrong."
        case "message.appended":
            message = record.event.message  # type: ignore[union-attr]
            called = "".join(f"calls {one.name} {one.arguments}" for one in message.tool_calls)
            return f"{message.role}: {message.content or called}"
        case "tool_call.started":
            return "credit, on disk before the function runs"
        case "tool_call.in_doubt":
            return "credit: started, and no outcome is on record"
        case "tool_call.decided":
            return "completed, says ann"
        case "run.resumed":
            return "by another process"
        case "run.waiting":
            return "for a person: turnledger resolve"
    return ""


def lines(records: list[Record]) -> Iterator[tuple[str, str, str, str]]:
    """Version, tag, summary and colour of each line; the kill is one of them."""
    for record in records:
        if record.tag.startswith(LEFT_OUT):
            continue
        colour = "#f28b82" if record.tag in ALARMING else COLOURS[record.tag.partition(".")[0]]
        yield str(record.version), record.tag, summary(record), colour
        if record.tag == "tool_call.started":
            yield "", "kill -9", "", "#f28b82"


def drawn(records: list[Record]) -> str:
    """The picture."""
    shown = list(lines(records))
    height = LINE * (len(shown) + 2)
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {font}>',
        "<title>The events of a run whose worker was killed inside a tool</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#202124"/>',
    ]
    for place, (version, tag, text, colour) in enumerate(shown, 1):
        y = LINE * place + 14
        if not version:
            parts.append(
                f'<line x1="{LEFT}" y1="{y - 5}" x2="{WIDTH - LEFT}" y2="{y - 5}" '
                f'stroke="{colour}" stroke-dasharray="6 4"/>'
                f'<rect x="64" y="{y - 15}" width="72" height="20" fill="#202124"/>'
            )
        parts.append(
            f'<text x="{LEFT + 26}" y="{y}" fill="#9aa0a6" text-anchor="end">{version}</text>'
            f'<text x="70" y="{y}" fill="{colour}">{escape(tag)}</text>'
            f'<text x="280" y="{y}" fill="#bdc1c6">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def picture() -> str:
    """Do what it shows, and draw it."""
    with TemporaryDirectory() as folder:
        return drawn(recorded(Path(folder) / "runs.db"))


def main(file: str = "") -> None:
    if file:
        agent.run("My invoice is wrong.", ledger=file)
    else:
        FILE.write_text(picture())


if __name__ == "__main__":
    main(*sys.argv[1:])
