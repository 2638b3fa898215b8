"""A script for tests of the command: a block, and the same as a workflow.

It pays into a file. SHOP_DIES is the step within which the process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import turnledger


def dies(step: str) -> None:
    if os.environ.get("SHOP_DIES") == step:
        os.kill(os.getpid(), signal.SIGKILL)


@turnledger.step
def check(order: int) -> dict[str, int]:
    return {"euros": 100 + order}


@turnledger.step(on_interrupt="ask", key=lambda order, euros: str(order))
def pay(order: int, euros: int) -> dict[str, int]:
    with Path(os.environ["SHOP_BANK"]).open("a") as bank:
        bank.write(f"{order}\n")
    dies("pay")
    return {"receipt": order}


@turnledger.step
def settle(order: int) -> dict[str, int]:
    return pay(order, check(order)["euros"])


@turnledger.workflow("shop/settle")
def settled(order: int) -> dict[str, int]:
    return settle(order)


if __name__ == "__main__":
    with turnledger.run("order-17", ledger=os.environ.get("TURNLEDGER_DB", "runs.db")):
        print(settle(17), file=sys.stderr)
