"""Event streams of a real server, while other processes write to its ledger."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import ExitStack
from random import Random
from uuid import UUID

from tests.crash.streaming import END, Client, Server, writer
from turnledger.ledger import ANY, CustomEvent, Ledger, Record

RUNS = [UUID(int=1), UUID(int=2), UUID(int=3)]
CLIENTS, EVENTS = 20, 5000
PATIENCE = 90.0


def say(processes: list[subprocess.Popen[str]], line: str) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def hear(processes: list[subprocess.Popen[str]], line: str) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{line}\n"


async def follow_all(url: str) -> list[Client]:
    """All clients after two writers, one killed server and its successor."""
    server, random = Server(url), Random(5)
    paths = ["/v1/stream", *(f"/v1/runs/{run}/stream" for run in RUNS), "/v1/stream"]
    async with asyncio.timeout(PATIENCE):
        with ExitStack() as stack:
            await server.start()
            stack.callback(server.end)
            *own, shared = RUNS
            writers = [
                stack.enter_context(writer(url, run, shared, EVENTS // len(own))) for run in own
            ]
            team = [
                Client(server, paths[number % len(paths)], random, EVENTS // 3)
                for number in range(CLIENTS)
            ]
            following = [asyncio.create_task(client.follow()) for client in team]
            await asyncio.to_thread(hear, writers, "ready")
            await asyncio.to_thread(hear, writers, "half")
            say(writers, "go on")
            await server.kill()
            await server.start()
            for process in writers:
                assert await asyncio.to_thread(process.wait) == 0
            with Ledger.open(url) as ledger:
                # The whole ledger's clients stop at the first one.
                for run in (shared, *own):
                    ledger.append(run, CustomEvent(kind=END), ANY)
            await asyncio.gather(*following)
            assert await server.stop() == 0
    return team


def test_each_client_sees_each_event_once_and_in_order(ledger_url: str) -> None:
    """Clients of the ledger and of runs, which leave and come back while two processes write and
    the server is killed and started again, see each event once, in order."""
    with Ledger.open(ledger_url) as ledger:
        for run in RUNS:
            ledger.append(run, CustomEvent(kind="test.begin"), ANY)
    team = asyncio.run(follow_all(ledger_url))
    with Ledger.open(ledger_url) as ledger:
        recorded = list(ledger.tail())
    assert len(recorded) == EVENTS + 2 * len(RUNS)
    ends = [is_end(record) for record in recorded]
    for client in team:
        own = [record for record in recorded if str(record.run_id) in client.path]
        expected = own or recorded[: ends.index(True) + 1]
        assert client.seen == [(one.position, str(one.event_id)) for one in expected]
    assert sum(client.visits for client in team) > 3 * CLIENTS


def is_end(record: Record) -> bool:
    return isinstance(record.event, CustomEvent) and record.event.kind == END
