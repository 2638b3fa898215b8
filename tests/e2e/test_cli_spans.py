"""`export --format otlp`: what a collector takes, on stdout or in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import InProcess, Processes
from tests.e2e.stories import record, story
from turnledger.ledger import RunStarted
from turnledger.telemetry import export_spans, otlp_json


def spans_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    (resource,) = body["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    found: list[dict[str, Any]] = scope["spans"]
    return found


def test_a_run_is_one_request_body_on_stdout(cli: InProcess, run: UUID) -> None:
    """The one that Python gives, byte for byte the same the second time."""
    first, second = (cli("export", "--format", "otlp", run) for _ in range(2))
    assert (first.code, first.out) == (0, second.out)
    with cli.ledger() as ledger:
        assert first.json == otlp_json(export_spans(ledger, run))
    found = spans_in(first.json)
    assert {span["traceId"] for span in found} == {run.hex}
    assert first.err == f"Exported {len(found)} spans of 1 run.\n"
    assert "Lisbon" not in first.out


def test_contents_are_added_on_demand(cli: InProcess, run: UUID) -> None:
    """With an option that no other format takes."""
    assert "Lisbon" in cli("export", "--format", "otlp", "--with-content", run).out
    for words in (("--format", "anthropic"), ()):
        refused = cli("export", *words, "--with-content", run)
        assert (refused.code, refused.out) == (2, "")
        assert "--with-content needs --format otlp." in refused.err
    refused = cli("export", "--format", "otlp", run, "--model", "x")
    assert (refused.code, refused.out) == (2, "")
    assert "--model can't be combined with --format otlp." in refused.err


def test_open_spans_are_left_out_and_counted(cli: InProcess) -> None:
    """A run that has not ended gives an empty body, which a collector takes too."""
    run = record(cli, [RunStarted()])
    done = cli("export", "--format", "otlp", run)
    assert (done.code, done.json) == (0, {})
    assert done.err == "Exported 0 spans of 1 run. Left out: 1 span not ended yet.\n"
    counts = json.loads(cli("export", "--format", "otlp", run, "-o", "json").err)
    assert counts == {"runs": 1, "spans": 0, "open_spans": 1}


def test_several_runs_are_lines_of_a_file(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """The oldest first, one request body each."""
    second = record(cli, story())
    file = tmp_path / "spans.jsonl"
    assert cli("export", "--format", "otlp", "--all", "-O", file).code == 0
    traces = [spans_in(json.loads(line))[0]["traceId"] for line in file.read_text().splitlines()]
    assert traces == [run.hex, second.hex]


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("opentelemetry", ("export", "--format", "otlp", "@last"), "telemetry"),
        ("mcp", ("mcp",), "mcp"),
        ("uvicorn", ("serve",), "http"),
    ],
)
def test_without_the_extra_a_command_says_what_to_install(
    package: str, words: tuple[str, ...], extra: str, processes: Processes, run: UUID
) -> None:
    """In one line, without a traceback."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from turnledger.adapters.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=processes.environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.endswith(f"needs a package: pip install 'turnledger[{extra}]'\n")
    assert len(done.stderr.splitlines()) == 1
