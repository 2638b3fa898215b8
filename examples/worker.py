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

from payments import Invoice, agent

from turnledger.ledger import Ledger, RunClaimedError
from turnledger.runtime import DecisionRequiredError, RecoveryError


def stop(number: int, frame: Any) -> None:
    """SIGTERM: the lease is given back, and the run can be taken up at once."""
    raise SystemExit(128 + number)


def recover_interrupted(ledger: Ledger) -> None:
    for run in agent.list_recoverable(ledger=ledger):
        try:
            print(f"recovered {run.run_id}: {agent.recover(run, ledger=ledger).text}")
        except RunClaimedError:
            continue  # another worker was quicker
        except DecisionRequiredError as error:
            print(error)
        except RecoveryError as error:
            print(f"abandoned {run.run_id}: {error}")
            agent.loop(ledger).abandon(run, reason=str(error))


def main(file: str, *invoices: str) -> None:
    signal.signal(signal.SIGTERM, stop)
    with Ledger.open(file) as ledger:
        recover_interrupted(ledger)
        for number in invoices:
            print(f"invoice {number}: {agent.run(Invoice(int(number)), ledger=ledger).text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
