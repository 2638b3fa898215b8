"""pytest plugin for LangGraph's own tests: what they run on SQLite runs on a ledger instead.

`make langgraph-tests LANGGRAPH_TESTS=folder` loads it. The tests that they run in memory stay: a
failure that only the others have is ours. (`test_imp_nested` fails in memory too on a busy machine:
it knows the order of two tasks of which one begins 10 ms later.)
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

os.environ["NO_DOCKER"] = "true"

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests import conftest_checkpointer as theirs
from turnledger.langgraph import TurnledgerSaver
from turnledger.ledger import Ledger

# Tests that fail here with every saver and without any, and why.
DESELECTED = {
    "test_tags_stream_mode_messages": "expects an environment without langchain: LangChain names "
    "each of its packages that is installed in `lc_versions`",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that can't pass here."""
    left_out = [item for item in items if item.name in DESELECTED]
    items[:] = [item for item in items if item.name not in DESELECTED]
    config.hook.pytest_deselected(items=left_out)


@contextmanager
def on_a_ledger(serde: SerializerProtocol | None = None) -> Iterator[TurnledgerSaver]:
    """A saver as permissive as LangGraph's own are: their tests keep classes of theirs in states.

    What they keep looks like secrets to nobody but a redactor.
    """
    serde = serde or JsonPlusSerializer(allowed_msgpack_modules=True)
    with TemporaryDirectory() as folder, Ledger.open(Path(folder, "runs.db")) as ledger:
        yield TurnledgerSaver(ledger, serde=serde)


def encrypted_on_a_ledger() -> AbstractContextManager[TurnledgerSaver]:
    """The same with a serializer that encrypts."""
    return on_a_ledger(EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456"))


@asynccontextmanager
async def on_a_ledger_async() -> AsyncIterator[TurnledgerSaver]:
    with on_a_ledger() as saver:
        yield saver


theirs._checkpointer_sqlite = on_a_ledger
theirs._checkpointer_sqlite_aes = encrypted_on_a_ledger
theirs._checkpointer_sqlite_aio = on_a_ledger_async
