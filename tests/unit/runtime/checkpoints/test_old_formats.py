"""Snapshots and checkpoint files of earlier versions, which spell types by their old modules."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import tests.shop_agent as shop
from turnledger.ledger import InnerMessage
from turnledger.runtime import (
    FilesystemCheckpointBackend,
    InProcessEventBus,
    RecoveryConfig,
    ScriptedAdapter,
    SectionVisibility,
    Session,
    Snapshot,
    VisibilityOverrides,
    enable_inner_message_recording,
)

# Written by the version whose packages were called ledger and runtime. Never regenerate them.
FORMATS = Path(__file__).parent / "formats"
RUN = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


class RecordingShop(shop.Shop):
    def create_session(self) -> Session:
        session = super().create_session()
        enable_inner_message_recording(session)
        return session


def test_a_snapshot_that_spells_old_modules_is_restored() -> None:
    """Its types are found by their class names, messages and visibility included."""
    text = (FORMATS / "session-1.snapshot.json").read_text()
    assert '"ledger.messages:InnerMessage"' in text
    assert '"runtime.visibility:VisibilityOverrides"' in text
    session = RecordingShop(adapter=ScriptedAdapter([]), bus=InProcessEventBus()).create_session()
    session.mutate().rollback(Snapshot.from_json(text))
    assert session[shop.Basket].latest() == shop.Basket(5)
    roles = [message.role for message in session.select_all(InnerMessage)]
    assert roles == ["system", "assistant", "tool", "assistant"]
    (overrides,) = session.select_all(VisibilityOverrides)
    assert dict(overrides.overrides) == {"task": SectionVisibility.FULL}


def test_a_run_is_recovered_from_a_checkpoint_file_that_spells_old_modules(tmp_path: Path) -> None:
    """The first tool's result stands, and only the second tool runs."""
    shutil.copy(FORMATS / f"{RUN}.checkpoint.json", tmp_path)
    config = RecoveryConfig(
        backend=FilesystemCheckpointBackend(tmp_path), max_resume_age=timedelta(days=36_500)
    )
    adapter = ScriptedAdapter(shop.REPLIES)
    loop = RecordingShop(adapter=adapter, bus=InProcessEventBus(), recovery=config)
    assert [run.run_id for run in loop.list_recoverable()] == [RUN]
    shop.CALLED.clear()
    response, session = loop.recover(RUN)
    assert shop.CALLED == ["c2"]
    assert response.text == "Tea is 5 \x1b[31meuros\x1b[0m."
    assert session[shop.Basket].latest() == shop.Basket(5)
