"""pytest plugin for LangGraph's own tests: what they run on SQLite runs on a ledger instead.

`make langgraph-tests LANGGRAPH_TESTS=folder` loads it. The tests that they run in memory stay: a
failure that only the others have is ours.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["NO_DOCKER"] = "true"

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests import conftest_checkpointer as theirs
from turnledger.langgraph import TurnledgerSaver
from turnledger.ledger import Ledger


@contextmanager
def on_a_ledger() -> Iterator[TurnledgerSaver]:
    """A saver as permissive as LangGraph's own are: their tests keep classes of theirs in states.

    What they keep looks like secrets to nobody but a redactor.
    """
    serde = JsonPlusSerializer(allowed_msgpack_modules=True)
    with TemporaryDirectory() as folder, Ledger.open(Path(folder, "runs.db")) as ledger:
        yield TurnledgerSaver(ledger, serde=serde)


@asynccontextmanager
async def on_a_ledger_async() -> AsyncIterator[TurnledgerSaver]:
    with on_a_ledger() as saver:
        yield saver


theirs._checkpointer_sqlite = on_a_ledger
theirs._checkpointer_sqlite_aio = on_a_ledger_async
