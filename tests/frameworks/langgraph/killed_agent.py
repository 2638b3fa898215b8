"""A LangChain agent whose tool kills its process, the first time that it is called.

python -m tests.frameworks.langgraph.killed_agent LEDGER POLICY sync|async start|resume
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from tests.frameworks.langgraph.graphs import agent, config
from turnledger.langgraph import TurnledgerMiddleware, TurnledgerSaver

LEDGER, POLICY, COLOUR, WHAT = sys.argv[1:]
PAID = Path(LEDGER).with_name("paid.txt")


@tool
def look(n: int) -> str:
    """Pay an amount."""
    with PAID.open("a") as file:
        file.write(f"{n}\n")
    if n == 1 and PAID.read_text().count("1") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {n}"


def main() -> None:
    saver = TurnledgerSaver(LEDGER)
    steps = TurnledgerMiddleware(saver, on_interrupt={"look": POLICY})  # type: ignore[dict-item]
    graph = agent(saver, 3, [look], middleware=[steps])
    given = {"messages": [HumanMessage("go")]} if WHAT == "start" else None
    if COLOUR == "sync":
        result = graph.invoke(given, config())
    else:
        result = asyncio.run(graph.ainvoke(given, config()))
    print(*(message.text for message in result["messages"]), sep="\n")


if __name__ == "__main__":
    main()
