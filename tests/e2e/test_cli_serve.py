"""`turnledger serve` as a process: where it listens, its link, a hostile body, and its end."""

from __future__ import annotations

import logging
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from tests.e2e.driving import PROGRAM, InProcess, Processes
from tests.secret_samples import samples
from turnledger.adapters.cli.operate.serve import log_handler
from turnledger.ledger import Ledger, Tokens, new_run_id

pytestmark = pytest.mark.process


@pytest.fixture
def served(processes: Processes) -> Iterator[subprocess.Popen[str]]:
    """The command, on a ledger that does not exist yet."""
    with subprocess.Popen(
        [PROGRAM, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=processes.environment(),
        text=True,
    ) as process:
        yield process
        process.kill()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_serves_until_it_is_told_to_stop(served: subprocess.Popen[str]) -> None:
    """The address alone is on stdout, and SIGTERM is not an error."""
    url = address(served)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert httpx.get(f"{url}/healthz").json() == {"ok": True}
    served.send_signal(signal.SIGTERM)
    out, err = served.communicate(timeout=60)
    assert (served.returncode, out) == (0, "")
    assert err.splitlines()[1].startswith(f"{url}/#code=")


def test_the_link_opens_a_session_once(served: subprocess.Popen[str]) -> None:
    """Its code stands in the fragment, which a browser sends nowhere by itself."""
    url = address(served)
    assert served.stderr is not None
    served.stderr.readline()
    code = served.stderr.readline().strip().removeprefix(f"{url}/#code=")
    page = {"origin": url, "x-turnledger": "1"}
    with httpx.Client(base_url=url, headers=page) as browser:
        assert browser.post("/v1/session", json={"code": code}).status_code == 200
        assert browser.get("/v1/session").json()["role"] == "admin"
    assert httpx.post(f"{url}/v1/session", json={"code": code}, headers=page).status_code == 401


def test_a_body_of_a_million_levels_is_refused(
    served: subprocess.Popen[str], processes: Processes
) -> None:
    """By an answer, not by a crash: the server is there afterwards."""
    url = address(served)
    with Ledger.open(processes.db) as ledger:
        token = Tokens(ledger).new("writer").text
    deep = b"[" * 1_000_000
    for body, status in ((deep, 400), (b'[{"type":"custom","data":{"a":' + deep, 413)):
        answer = httpx.post(
            f"{url}/v1/runs/{new_run_id()}/events?expect=any",
            content=body,
            headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
        )
        assert answer.status_code == status  # not JSON, and more than a million values
        assert answer.headers["content-type"] == "application/problem+json"
    assert httpx.get(f"{url}/healthz").json() == {"ok": True}


def test_what_goes_wrong_is_logged_on_stderr(
    served: subprocess.Popen[str], processes: Processes
) -> None:
    """One line with time and level; neither a line for each request, nor a token."""
    url = address(served)
    with Ledger.open(processes.db) as ledger:
        token = Tokens(ledger).new("reader").text
    headers = {"authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/v1/runs", headers=headers).status_code == 200
    with closing(sqlite3.connect(processes.db)) as store:
        store.execute("DROP TABLE runs")
    assert httpx.get(f"{url}/v1/runs", headers=headers).status_code >= 500
    served.send_signal(signal.SIGTERM)
    _, err = served.communicate(timeout=60)
    _, _, *lines = err.splitlines()
    (line,) = lines
    assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ WARNING turnledger\.http: GET /v1/runs: .", line)
    assert token not in err


def test_a_log_line_is_one_line_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped, and what a traceback quotes is masked."""
    secret = samples(1, 1, ["github-token"])[0].text
    handler = log_handler()
    root = logging.getLogger("tests.serve_log")
    root.propagate = False
    root.addHandler(handler)
    try:
        root.warning("one\ntwo\x1b[31m %s", secret)
        try:
            raise ValueError(f"three\x1b[31m {secret}")
        except ValueError:
            root.exception("four")
    finally:
        root.removeHandler(handler)
    first, second, *trace = capsys.readouterr().err.splitlines()
    assert "WARNING tests.serve_log: one\\ntwo\\x1b[31m " in first
    assert second.endswith("ERROR tests.serve_log: four")
    assert trace[-1].startswith("ValueError: three\\x1b[31m ")
    assert secret not in "".join((first, second, *trace))


def test_beyond_loopback_it_is_refused(cli: InProcess) -> None:
    """With the reason; no ledger is created."""
    done = cli("serve", "--host", "0.0.0.0")
    assert (done.code, done.out) == (1, "")
    assert "beyond loopback" in done.err
    assert not cli.db.exists()


def test_a_port_that_is_taken_is_named(cli: InProcess) -> None:
    """With what to do, and without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("serve", "--port", port)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"Error: Can't listen on 127.0.0.1:{port}: another process listens there. Stop it, or "
        "give another --port (0: a free one).\n"
    )


def test_tls_files_belong_together(cli: InProcess) -> None:
    """One alone is a mistake of the command line."""
    done = cli("serve", "--tls-cert", __file__)
    assert (done.code, done.out) == (2, "")
    assert "--tls-cert and --tls-key belong together" in done.err
