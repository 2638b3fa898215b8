"""Runs with secrets: what is recorded is what is true, live, after a kill, and in a replay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.replay import secretive
from tests.replay.secretive import ALL, WARNS, Ask, Note, Secretive, loop
from tests.secret_samples import samples
from turnledger.ledger import (
    CheckpointReached,
    CheckpointStored,
    InvalidInputError,
    Ledger,
    ModelCallFailed,
    Redactor,
    SecretPattern,
    new_run_id,
)
from turnledger.runtime import (
    Checkpoint,
    FilesystemCheckpointBackend,
    LedgerCheckpointBackend,
    RecoveryConfig,
    replay,
)

FIRST, SECOND = (sample.text for sample in samples(78, 2, ["anthropic-key"]))
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATED", FIRST)
    monkeypatch.delenv("DIES_IN", raising=False)
    secretive.SENT.clear()
    secretive.THREW.clear()


def _in_process(db: Path, run: UUID, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tests.replay.secretive", str(db), str(run)],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        timeout=120,
    )


def _bytes(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def _assert_clean(*places: bytes | str) -> None:
    for place in places:
        data = place.encode() if isinstance(place, str) else place
        for secret in (*ALL, FIRST, SECOND):
            for line in secret.splitlines():
                assert len(line) < 20 or line.startswith("-----") or line.encode() not in data


def test_a_live_run_shows_the_model_what_is_recorded(tmp_path: Path) -> None:
    """If the model were sent more than the record has, a recovered run would go another way."""
    with Ledger.open(tmp_path / "runs.db", redactor=WARNS) as ledger:
        run = new_run_id()
        response, session = loop(ledger).execute(
            Ask(f"what {secretive.REQUESTED} opens"), run_id=run
        )
        assert response.text == "The key is [redacted: aws-access-key-id]."
        _assert_clean("".join(secretive.SENT), _bytes(tmp_path), repr(session[Note].all()))
        failures = [r.event for r in ledger.read(run) if isinstance(r.event, ModelCallFailed)]
        assert "[redacted: slack-token]" in failures[0].error_message
        found = replay(ledger, run, loop=loop(ledger))
        assert found.divergence is None


@pytest.mark.parametrize("call", ["c1", "c2"])
def test_a_run_that_was_killed_goes_on_and_replays_though_the_secret_is_another(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was rotated since is no other prompt: what is on record of both is the same."""
    db, run, twin = tmp_path / "runs.db", new_run_id(), new_run_id()
    done = _in_process(db, run, DIES_IN=call)
    assert done.returncode == -signal.SIGKILL
    monkeypatch.setenv("ROTATED", SECOND)
    with Ledger.open(db, redactor=WARNS) as ledger:
        response, _ = loop(ledger).recover(run)
        assert response.text == "The key is [redacted: aws-access-key-id]."
        secretive.SENT.clear()
        loop(ledger).execute(Ask(f"what {secretive.REQUESTED} opens"), run_id=twin)
        ends = [_outcome(ledger, one) for one in (run, twin)]
        assert ends[0] == ends[1] != ""
        for one in (run, twin):
            assert replay(ledger, one, loop=loop(ledger)).divergence is None
            assert replay(
                ledger, one, declarations=loop(ledger).loop_host.create_session().declarations
            )
        _assert_clean(_bytes(tmp_path))
    _assert_clean(done.stdout, done.stderr, _bytes(tmp_path))


def _outcome(ledger: Ledger, run: UUID) -> str:
    found = [r.event for r in ledger.read(run) if isinstance(r.event, CheckpointReached)]
    return found[-1].outcome_digest


def test_a_replay_with_other_rules_parts_from_the_record(tmp_path: Path) -> None:
    """What is compared is what would be recorded: without the rules, the secrets are news."""
    with Ledger.open(tmp_path / "runs.db", redactor=WARNS) as ledger:
        run = new_run_id()
        loop(ledger).execute(Ask("anything"), run_id=run)
    with Ledger.open(tmp_path / "runs.db", redactor=None) as ledger:
        assert replay(ledger, run, loop=loop(ledger)).divergence is not None


def test_a_divergence_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a replay is printed, and goes into the logs of the tests."""
    with Ledger.open(tmp_path / "runs.db", redactor=WARNS) as ledger:
        run = new_run_id()
        loop(ledger).execute(Ask("anything"), run_id=run)
        monkeypatch.setenv("ROTATED", f"{SECOND} and more")
        other = replay(ledger, run, loop=loop(ledger)).divergence
        monkeypatch.setenv("FAILS", SECOND)
        failed = replay(ledger, run, loop=loop(ledger)).divergence
        assert other is not None
        assert failed is not None
        _assert_clean(repr(other), str(other), repr(failed), str(failed))


def test_ones_own_rules_hold_for_a_run(tmp_path: Path) -> None:
    """The redactor of the ledger is the one of the loop, too."""
    rules = Redactor(
        formats=[],
        patterns=[SecretPattern("word", "anything")],
        fields=["where"],
        on_redacted="warn",
    )
    with Ledger.open(tmp_path / "runs.db", redactor=rules) as ledger:
        run = new_run_id()
        loop(ledger).execute(Ask("anything"), run_id=run)
        sent = "".join(secretive.SENT)
        assert "[redacted: word]" in sent
        assert "anything" not in sent
        assert secretive.ARGUMENT not in sent
        assert replay(ledger, run, loop=loop(ledger)).divergence is None


def test_a_request_that_is_none_without_its_secret_is_refused(tmp_path: Path) -> None:
    """It could never be recovered, so it is not begun."""
    from pydantic import BaseModel, Field

    class Short(BaseModel):
        token: str = Field(pattern=r"^ghp_[A-Za-z0-9]{36}$")

    with Ledger.open(tmp_path / "runs.db") as ledger:
        strict = Secretive([], ledger=ledger, request_type=Short)
        with pytest.raises(InvalidInputError, match="holds a secret") as caught:
            strict.execute(Short(token=secretive.SEEDED))  # type: ignore[arg-type]
        assert secretive.SEEDED not in str(caught.value)
        assert not list(ledger.runs())


def test_checkpoints_in_files_hold_no_secret(tmp_path: Path) -> None:
    """Without a ledger, what a run can be recovered from lies in files."""
    backend = FilesystemCheckpointBackend(tmp_path / "kept")
    run = new_run_id()
    recovery = RecoveryConfig(backend=backend, cleanup_on_success=False)
    kept = Secretive(secretive._reply, recovery=recovery)
    secretive.THREW.append("")
    kept.execute(Ask(f"what {secretive.REQUESTED} opens"), run_id=run)
    checkpoint = backend.load(run)
    assert checkpoint is not None
    assert b"[redacted: openai-key]" in checkpoint.request_payload
    _assert_clean(_bytes(tmp_path), checkpoint.request_payload, checkpoint.adapter_state or b"")
    # And one that somebody saves in a ledger, where its bytes are base64.
    payload = f'{{"question": "{secretive.REQUESTED}"}}'.encode()
    given = replace(checkpoint, request_payload=payload, adapter_state=payload)
    with Ledger.open(tmp_path / "runs.db") as ledger:
        LedgerCheckpointBackend(ledger).save(new_run_id(), given)
        stored = [r.event for r in ledger.tail() if isinstance(r.event, CheckpointStored)]
    found = Checkpoint.from_json(stored[0].checkpoint)
    assert found.request_payload == b'{"question": "[redacted: openai-key]"}'
    assert found.adapter_state == found.request_payload
