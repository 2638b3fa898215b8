"""An agent that workers run and that is killed in it: it pays into a file, and asks if unsure."""

from __future__ import annotations

import os
import time

from tests.agent import calls, says
from turnledger import Agent, tool
from turnledger.projections import TextBlock
from turnledger.runtime import Reply, Request

NAME = "tests/till"
# Names the file that is paid into, a line for each payment.
BANK = "QUEUE_BANK"
# Seconds that a payment takes after the money went, and before anybody knows.
PAUSE = "QUEUE_PAUSE"


@tool(on_interrupt="ask")
def pay(order: str) -> str:
    """Pay an order."""
    descriptor = os.open(os.environ[BANK], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{order}\n".encode())
    os.close(descriptor)
    time.sleep(float(os.environ.get(PAUSE, "0")))
    return "paid"


def replies(request: Request) -> Reply:
    """Pays the order that the request names, then says so."""
    if request.turn > 1:
        return says("Paid.")
    (said,) = request.turns[-1].blocks
    assert isinstance(said, TextBlock)
    return calls(("pay", "pay", f'{{"order": "{said.text}"}}'))


agent = Agent(NAME, model=replies, instructions="Pay the order.", tools=[pay])
