"""Figures for Prometheus and the log of requests."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import msgspec
import pytest

from tests.secret_samples import samples as secrets
from tests.servers.ledger_server import served_ledger
from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.observe import Metrics

SAMPLE = re.compile(r'(turnledger_[a-z_]+)(\{(?:[a-z]+="[^"\\\n]*",?)*\})? ([0-9.e+-]+)')


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as api:
        yield api


def samples(text: str) -> dict[str, float]:
    """Each sample by its name and labels; every line is a comment or a sample."""
    found = [line for line in text.splitlines() if not line.startswith("# ")]
    matches = [SAMPLE.fullmatch(line) for line in found]
    assert all(matches), found
    return {f"{one[1]}{one[2] or ''}": float(one[3]) for one in matches if one}


def test_requests_are_counted_by_route_and_status(api: Api) -> None:
    """A request counts under its route's pattern, never under the address that was asked for."""
    run = api.new_run()
    api.call("GET", f"/v1/runs/{run}")
    api.call("GET", f"/v1/runs/{run}")
    api.call("GET", "/v1/secret-place")
    api.call("GET", f"/v1/runs/{run}", token="wrong")
    api.call("BREW", "/v1/runs")
    answer = api.call("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(answer.text)
    requests = "turnledger_http_requests_total"
    assert found[f'{requests}{{method="GET",route="/v1/runs/{{run}}",status="200"}}'] == 2
    assert found[f'{requests}{{method="GET",route="other",status="404"}}'] == 1
    assert found[f'{requests}{{method="GET",route="other",status="401"}}'] == 1
    assert found[f'{requests}{{method="other",route="/v1/runs",status="405"}}'] == 1
    assert found['turnledger_http_request_duration_seconds_count{route="/v1/runs/{run}"}'] == 2
    assert found["turnledger_http_open_streams"] == 0
    assert str(run) not in answer.text
    assert "secret-place" not in answer.text


def test_new_events_are_counted(api: Api) -> None:
    """What is recorded counts once, however often it is sent."""
    run = api.new_run()
    event = {"type": "custom", "data": {"kind": "a.b"}, "event_id": str(run)}
    for _ in range(2):
        api.call("POST", f"/v1/runs/{run}/events?expect=any", json=[event])
    assert samples(api.call("GET", "/metrics").text)["turnledger_appended_events_total"] == 1


def test_a_histogram_counts_up() -> None:
    """A bucket has all that took at most its bound, and the last one has all."""
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.02, 99):
        metrics.took("/a", seconds)
    found = samples(metrics.text(open_streams=0))
    name = "turnledger_http_request_duration_seconds"
    buckets = {key: value for key, value in found.items() if key.startswith(f"{name}_bucket")}
    assert list(buckets.values()) == [2, 2, 2, 3, 3, 3, 3, 3, 3, 4]
    assert found[f'{name}_count{{route="/a"}}'] == 4
    assert found[f'{name}_sum{{route="/a"}}'] == pytest.approx(99.0215)


def test_figures_need_a_token(api: Api) -> None:
    """Nobody without a token reads the figures."""
    assert api.call("GET", "/metrics", token="").status_code == 401


def test_the_log_of_requests_holds_nothing_secret(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """A line of JSON says who asked for what; tokens, bodies, and values of queries and of
    unknown addresses are not in it."""
    caplog.set_level(logging.INFO, "turnledger.http.requests")
    run = api.new_run()
    secret = "hunter2-in-clear"
    body = [{"type": "custom", "data": {"kind": "a.b", "data": secret}}]
    api.call("POST", f"/v1/runs/{run}/events?expect=any&also={secret}", json=body)
    api.call("GET", f"/v1/runs/{secret}/events")
    api.call("GET", f"/{secret}")
    api.call("GET", "/v1/runs", token=secret, headers={"cookie": f"turnledger={secret}"})
    lines = [msgspec.json.decode(record.message) for record in caplog.records]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("POST", "/v1/runs/{run}/events", 201),
        ("GET", "/v1/runs/{run}/events", 422),
        ("GET", "other", 404),
        ("GET", "other", 401),
    ]
    token_id = api.token.split("_")[1]
    assert lines[0].items() >= {"run": str(run), "caller": token_id}.items()
    assert secret not in caplog.text
    assert api.token not in caplog.text
    assert api.token.split("_")[2] not in caplog.text


def test_an_unexpected_error_has_an_id_that_the_log_has_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The problem has the id and nothing of the error; the log has both, without secrets."""
    secret = secrets(1, 1, ["github-token"])[0].text

    async def fail() -> None:
        raise RuntimeError(f"broken: {secret}")

    with served_ledger() as served:
        served.app.api.add("GET", "/fail", fail, role="reader", answers={})
        answer = served.get("/fail")
    assert answer.status_code == 500
    detail = answer.json()["detail"]
    found = re.fullmatch(r"The server failed: error ([0-9a-f]{16})\. .*", detail)
    assert found is not None, detail
    assert f"Error {found[1]}: GET /fail" in caplog.text
    assert "RuntimeError: broken: " in caplog.text
    assert secret not in caplog.text
    assert "broken" not in answer.text
