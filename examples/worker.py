"""A worker: first it recovers what was interrupted, then it takes new work.

    python examples/worker.py jobs.db 17 18 19

Start several on one ledger, and kill them as you like: each run has one worker at a time, and
what one leaves another takes up. A run that waits for a person is left alone until it has been
decided (`turnledger pending`, `turnledger resolve`).
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from payments import Clerk, Invoice, loop

from turnledger.ledger import Ledger, RunClaimedError
from turnledger.runtime import DecisionRequiredError, RecoveryError


def stop(number: int, frame: Any) -> None:
    """SIGTERM: the lease is given back, and the run can be taken up at once."""
    raise SystemExit(128 + number)


def recover_interrupted(clerk: Clerk) -> None:
    for run in clerk.list_recoverable():
        try:
            response, _ = clerk.recover(run)
            print(f"recovered {run.run_id}: {response.text}")
        except RunClaimedError:
            continue  # another worker was quicker
        except DecisionRequiredError as error:
            print(error)
        except RecoveryError as error:
            print(f"abandoned {run.run_id}: {error}")
            clerk.abandon(run, reason=str(error))


def main(file: str, *invoices: str) -> None:
    signal.signal(signal.SIGTERM, stop)
    with Ledger.open(file) as ledger:
        clerk = loop(ledger)
        recover_interrupted(clerk)
        for number in invoices:
            response, _ = clerk.execute(Invoice(int(number)))
            print(f"invoice {number}: {response.text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
