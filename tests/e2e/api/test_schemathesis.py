"""schemathesis on the served document: no server error, no answer that the document lacks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from docs.http_pages import served_document
from tests.e2e.driving import PROGRAM, Processes
from tests.soaking import ROOT, SOAK_MINUTES, Search
from turnledger.ledger import Ledger, Tokens, import_runs

pytestmark = [pytest.mark.process, pytest.mark.slow]
COMMAND = Path(sys.executable).with_name("schemathesis")
HISTORIES = ROOT / "tests" / "replay" / "histories"
CONFIGURATION = tomllib.loads((ROOT / "schemathesis.toml").read_text())
EXPECTED = ["2xx", 404, 409, 412, 428]
SHARE = 0.05


class Served(NamedTuple):
    """A ledger with some runs, served by a process of its own."""

    url: str
    token: str
    db: Path


@pytest.fixture
def served(processes: Processes) -> Iterator[Served]:
    with Ledger.open(processes.db) as ledger:
        for path in sorted(HISTORIES.glob("*.jsonl")):
            with path.open("rb") as file:
                import_runs(ledger, file)
        token = Tokens(ledger).new("admin").text
    with subprocess.Popen(
        [PROGRAM, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=processes.environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Served(process.stdout.readline().strip(), token, processes.db)
        process.terminate()


def fuzz(served: Served, processes: Processes, *options: object) -> str:
    """What schemathesis prints; it found nothing, and the server and its ledger are well."""
    # From a file: the operation that it loads a document from, it leaves out.
    document = served.db.with_name("openapi.json")
    token = {"authorization": f"Bearer {served.token}"}
    document.write_bytes(httpx.get(f"{served.url}/openapi.json", headers=token).content)
    done = subprocess.run(
        [COMMAND, "run", document, "--url", served.url, *map(str, options)],
        cwd=ROOT,
        env=processes.environment(TURNLEDGER_TOKEN=served.token),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert httpx.get(f"{served.url}/readyz").json() == {"ok": True}
    with Ledger.open(served.db) as ledger:
        assert ledger.verify_all().ok
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--phases", "coverage"),
        ("--phases", "fuzzing,stateful", "--max-examples", 25),
    ],
    ids=["coverage", "fuzzing and stateful"],
)
def test_nothing_is_found(
    served: Served, processes: Processes, options: tuple[object, ...]
) -> None:
    """Every operation but the streams is tried, with the same requests each time."""
    out = fuzz(served, processes, "--seed", 18, *options)
    operations = [name for path in served_document()["paths"].items() for name in names(*path)]
    assert f"Tested: {len(operations)}\n" in out, out


def names(path: str, methods: dict[str, object]) -> list[str]:
    """The operations of a path, but for those that never end."""
    return [] if path.endswith("/stream") else [f"{method} {path}" for method in methods]


def test_little_is_left_out() -> None:
    """Another exclusion is one check of one operation, and there are at most five of them."""
    assert CONFIGURATION["checks"] == {
        "positive_data_acceptance": {"expected-statuses": EXPECTED},
    }
    left_out = 0
    for operation in CONFIGURATION["operations"]:
        if operation.get("enabled") is False:
            assert operation["include-path-regex"] == "/stream$"
            continue
        assert operation.keys() == {"include-name", "checks"}
        left_out += len(operation["checks"])
    assert left_out <= 5


@pytest.mark.soak
def test_nothing_is_found_by_a_long_search(served: Served, processes: Processes) -> None:
    """All phases, with other requests each time, for as long as there is time."""
    search = Search("schemathesis", goal={"requests": 1_000_000})
    seconds = max(60, round(SOAK_MINUTES * 60 * SHARE))
    for number in search.rounds(share=SHARE):
        with search.blaming(f"seed {number}"):
            out = fuzz(served, processes, "--seed", number, "--max-time", seconds)
        found = re.search(r"(\d+) generated", out)
        search.count(requests=int(found[1]) if found else 0)
    assert search.problems == []
