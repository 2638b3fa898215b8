"""DBOS: a workflow whose steps give the messages. Resumed by running it again over its record.

Loading is `DBOS.list_workflow_steps`. SQLite: the defaults, a rollback journal with
synchronous=FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.peer import NextText, NextTextOf, Peer
from benchmarks.peers.worker import die

WORKFLOW = "conversation"


def launch(where: str) -> None:
    """Start DBOS on a store; it recovers what was interrupted."""
    url = where if where.startswith("postgresql:") else f"sqlite:///{where}"
    DBOS(config={"name": "peers", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()


class Dbos(Peer):
    """A workflow of DBOS."""

    def begin(self, many: Sequence[str]) -> None:
        workflow = _conversation(NextTextOf(many, die))
        launch(self.where)
        with SetWorkflowID(WORKFLOW):
            workflow()

    def go_on(self, next_text: NextText) -> None:
        _conversation(next_text)
        launch(self.where)
        DBOS.retrieve_workflow(WORKFLOW).get_result()

    def load(self) -> Sequence[object]:
        return [step["output"] for step in DBOS.list_workflow_steps(WORKFLOW)]

    def pay(self, tool: Callable[[], str]) -> None:
        workflow = _payment(tool)
        launch(self.where)
        with SetWorkflowID(WORKFLOW):
            workflow()

    def recover(self, tool: Callable[[], str]) -> str:
        """It recovers by itself when it is launched."""
        _payment(tool)
        launch(self.where)
        return str(DBOS.retrieve_workflow(WORKFLOW).get_result())


def _conversation(next_text: NextText) -> Any:
    @DBOS.step()
    def say() -> str:
        return next_text()

    @DBOS.workflow()
    def conversation() -> None:
        while True:
            say()

    return conversation


def _payment(tool: Callable[[], str]) -> Any:
    @DBOS.step()
    def pay() -> str:
        return tool()

    @DBOS.workflow()
    def payment() -> str:
        return pay()

    return payment
