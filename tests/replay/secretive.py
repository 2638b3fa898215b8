"""An agent that comes by secrets in every way there is, and dies where it is told to.

Its request holds one, its prompt another from the environment, its session, its tool's arguments,
its tool's results and changes, and its model's errors more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.agent import ScriptedLoop, calls, says, task
from tests.secret_samples import samples
from turnledger.ledger import Ledger, Redactor
from turnledger.runtime import (
    Prompt,
    Reply,
    Session,
    ThrottlePolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from turnledger.runtime.agent.models.request import Request

REQUESTED, SEEDED, ARGUMENT, RESULT, NOTED, REPLIED, THROWN = (
    sample.text
    for sample in samples(
        77,
        1,
        [
            "openai-key",
            "github-token",
            "url-password",
            "private-key",
            "jwt",
            "aws-access-key-id",
            "slack-token",
        ],
    )
)
# The ledger's redactor: calls are made with what is left of their arguments.
WARNS = Redactor(on_redacted="warn")
ALL = (REQUESTED, SEEDED, ARGUMENT, RESULT, NOTED, REPLIED, THROWN)


class OverloadedError(Exception):
    """What a provider says when it quotes the key that it was called with."""

    status_code = 529
    retryable = True


@dataclass(frozen=True)
class Ask:
    question: str


@dataclass(frozen=True)
class Look:
    where: str


@dataclass(frozen=True)
class Note:
    text: str


SENT: list[str] = []
THREW: list[str] = []


def look(params: Look, *, context: ToolContext) -> ToolResult[Any]:
    context.session[Note].append(Note(f"looked at {params.where} with {NOTED}"))
    if os.environ.get("DIES_IN") == context.call_id:
        os.kill(os.getpid(), signal.SIGKILL)
    return ToolResult(f"found:\n{RESULT}", value={"env": {"KEY": RESULT}})


def _reply(request: Request) -> Reply:
    SENT.append(f"{request.system} {request.turns!r}")
    if request.turn == 3 and not THREW:
        THREW.append(THROWN)
        raise OverloadedError(f"overloaded, called with {THROWN}")
    if request.turn < 3:
        arguments = json.dumps({"where": f"{ARGUMENT}?n={request.turn}"})
        return calls((f"c{request.turn}", "look", arguments))
    return says(f"The key is {REPLIED}.")


class Secretive(ScriptedLoop[Ask, str]):
    def create_session(self) -> Session:
        session = Session(bus=self._bus, tags={"key": SEEDED})
        session[Note].seed([Note(f"begin with {SEEDED}")])
        return session

    def create_prompt(self, request: Ask) -> Prompt[str]:
        if "FAILS" in os.environ:
            raise ValueError(f"no prompt for {os.environ['FAILS']}")
        tools = [Tool[Look, Any](name="look", description="Look there.", handler=look)]
        text = f"Answer ${{question}} with {os.environ['ROTATED']}."
        return task(request, text, tools, name="secretive/look")


def loop(ledger: Ledger) -> Secretive:
    policy = ThrottlePolicy(max_attempts=3, base_delay=timedelta(milliseconds=1))
    return Secretive(
        _reply,
        adapter_options={"throttle": policy},
        ledger=ledger,
    )


if __name__ == "__main__":
    with Ledger.open(sys.argv[1], redactor=WARNS) as ledger:
        loop(ledger).execute(Ask(f"what {REQUESTED} opens"), run_id=UUID(sys.argv[2]))
