"""The page out of the wheel: no node, no sources, an environment with the extra `http` alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.conformance.samples import notes
from tests.e2e.test_wheel import Installed, installed, new_environment, once
from tests.page.harness.served import PROGRAM, Served
from tests.page.harness.visit import Browse
from turnledger.ledger import ANY, NEW, Ledger, RunStarted, new_run_id

__all__ = ["installed"]
STATIC = Path(__file__).parents[3] / "adapters/web/static"


@pytest.fixture
def python_with_http(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel with the extra."""

    def install(folder: Path) -> None:
        new_environment(folder / "venv", f"{installed.wheel}[http]")

    return once(tmp_path_factory, "wheel-and-http", install) / "venv/bin/python"


def test_the_wheel_serves_the_page(python_with_http: Path, browse: Browse, tmp_path: Path) -> None:
    """All its files are in the wheel, and a run is shown."""
    db, empty, shown = tmp_path / "runs.db", tmp_path / "empty", new_run_id()
    empty.mkdir()
    with Ledger.open(db) as ledger:
        ledger.append(shown, RunStarted(), NEW)
        ledger.append(shown, notes(5), ANY)
    environment = {"PATH": str(empty), "PYTHONPATH": ""}
    assert shutil.which("node", path=str(empty)) is None
    command = (python_with_http, "-I", "-c", PROGRAM)
    with Served(db, tmp_path / "server.log", command, **environment) as served:
        for file in STATIC.rglob("*"):
            if file.is_file():
                path = f"/{file.relative_to(STATIC).as_posix()}"
                assert served.get(path).content == file.read_bytes()
        visit = browse(served)
        visit.open(f"/runs/{shown}")
        visit.expect_version(6)
        expect(visit.page.get_by_role("listbox", name="Events")).to_contain_text("test.note")
        visit.close()
