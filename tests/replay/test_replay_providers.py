"""Runs of real SDKs against strict servers, run again when the servers are gone.

Every kind of agent with every wire format, streamed and whole. No socket is made, no client is
built and no handler is called: everything that a replay needs is in the ledger.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.providers.harness import PROVIDERS, under_test
from tests.crash.agents import KINDS, Agent, Order, parallel_tools
from tests.crash.provided import script_of
from tests.faults.empty_network import without_network
from tests.matrices import cells
from tests.replay import elsewhere
from turnledger.ledger import Ledger, ModelReplied, new_run_id
from turnledger.runtime import PromptEvaluationError
from turnledger.runtime.replaying.replay import replay

ROOT = Path(__file__).parents[2]
WAYS = [(name, stream) for name in PROVIDERS for stream in (False, True)]
NAMES = [f"{name}{'-stream' * stream}" for name, stream in WAYS]


class Library:
    """Recorded runs: each provider's when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.plans = functools.cache(self._recorded)

    def _recorded(self, name: str, stream: bool) -> dict[str, dict[str, Any]]:
        """The runs of every kind of agent with a provider, by kind; the server is gone then."""
        folder = self._folder / f"{name}-{stream}"
        folder.mkdir()
        url = str(folder / "ledger.db")
        plans = {}
        with under_test(name, stream=stream) as provider, Ledger.open(url) as ledger:
            for kind in KINDS:
                provider.tells(script_of(kind))
                more = elsewhere.OPTIONS.get(name, {})
                adapter = provider.adapter(parallel_tools=parallel_tools(kind), **more)
                agent = Agent(kind, folder / f"effects-{kind}", ledger, adapter=adapter)
                orders = [Order(), Order("beta")] if kind == "reused" else [Order()]
                runs = [new_run_id() for _ in orders]
                for run, order in zip(runs, orders, strict=True):
                    agent.execute(order, run_id=run)
                plans[kind] = {
                    "provider": name,
                    "kind": kind,
                    "stream": stream,
                    "url": url,
                    "folder": str(folder),
                    "runs": [str(run) for run in runs],
                }
            assert [str(refused) for refused in provider.server.refused] == []
        return plans

    def all(self) -> list[dict[str, Any]]:
        return [plan for way in WAYS for plan in self.plans(*way).values()]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("recorded"))


def check(found: list[dict[str, Any]], head: int) -> None:
    """All replays of a run follow it to its end, and come to the same state."""
    assert [one["depth"] for one in found] == ["fold", "fold", "execute"]
    for one in found:
        assert one["divergence"] is None
        assert one["version"] == head
    assert len({one["outcome"] for one in found}) == 1
    assert found[1]["state"] == found[2]["state"]


@pytest.mark.parametrize(("way", "kind"), cells(WAYS, KINDS))
def test_every_agent_with_every_provider(
    library: Library, way: tuple[str, bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fold and re-execution agree with the record; nothing of the world is touched."""
    name, stream = way
    plan = library.plans(name, stream)[kind]
    world = elsewhere.World()
    monkeypatch.setattr(elsewhere.NoSocket, "world", world)
    monkeypatch.setattr(socket, "socket", elsewhere.NoSocket)
    monkeypatch.setattr(socket.socket, "connect", functools.partial(world.hears, "socket.connect"))
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *args, **kwargs: world.hears("socket.getaddrinfo", args)
    )
    with Ledger.open(plan["url"]) as ledger, elsewhere.no_clients(world):
        for run in plan["runs"]:
            found = elsewhere.again(ledger, UUID(run), plan, world)
            check(elsewhere.told(found), ledger.head(run))
            assert found[2].attempts == 1
    assert world.touched == []


@pytest.mark.parametrize(("name", "stream"), WAYS, ids=NAMES)
def test_what_was_thought_is_on_record(library: Library, name: str, stream: bool) -> None:
    """What goes back to the provider unchanged is part of what is compared."""
    plan = library.plans(name, stream)["sequential"]
    with Ledger.open(plan["url"]) as ledger:
        replies = [one.event for one in ledger.read(plan["runs"][0]) if one.tag == "model.replied"]
    assert len(replies) == 4
    kept = [one.provider_data for one in replies if isinstance(one, ModelReplied)]
    if name not in ("openai-chat", "litellm"):  # their format has no place for it
        assert sum(data is not None for data in kept) >= 3


@pytest.mark.parametrize(("name", "stream"), WAYS, ids=NAMES)
def test_up_to_every_version(library: Library, name: str, stream: bool) -> None:
    """Of the agent with calls side by side: each prefix of its record is a record too."""
    plan = library.plans(name, stream)["parallel"]
    (run,) = plan["runs"]
    world = elsewhere.World()
    with (
        Ledger.open(plan["url"]) as ledger,
        Ledger.open("memory://") as nobody,
        elsewhere.no_clients(world),
    ):
        for until in range(1, ledger.head(run) + 1):
            adapter = elsewhere.adapter_of(name, "parallel", stream=stream)
            folder = Path(plan["folder"])
            agent = Agent("parallel", folder / "none", nobody, point=world.point, adapter=adapter)
            found = replay(ledger, run, loop=agent, until=until)
            assert found.divergence is None
            assert found.version == until
    assert world.touched == []


class _StoppedError(BaseException):
    """The process is gone."""


def _named(provider: str) -> tuple[str, str]:
    adapter = PROVIDERS[provider].adapter(elsewhere.NOWHERE)
    return adapter.name, adapter.model


# Both of OpenAI's formats record the same adapter and model: options alone are no other model.
PAIRS = [pair for pair in product(PROVIDERS, repeat=2) if _named(pair[0]) != _named(pair[1])]
# `make test` has each provider once as the first and once as the second.
_ORDER = list(PROVIDERS)
_KEPT = {(name, _ORDER[(place + 2) % len(_ORDER)]) for place, name in enumerate(_ORDER)}


@pytest.mark.parametrize(
    ("pair", "requests"),
    [
        pytest.param(
            pair,
            requests,
            id=f"{'-'.join(pair)}-{requests}",
            marks=() if pair in _KEPT and requests == 2 else pytest.mark.full,
        )
        for pair, requests in product(PAIRS, [1, 2, 3])
    ],
)
def test_a_run_that_another_provider_recovered(
    tmp_path: Path, pair: tuple[str, str], requests: int
) -> None:
    """For every ordered pair: the last one's agent runs it again, the first one's differs."""
    run = new_run_id()
    with Ledger.open("memory://") as ledger:
        for name in pair:
            with under_test(name) as provider:
                provider.tells(script_of("sequential"))
                adapter = provider.adapter(**elsewhere.OPTIONS.get(name, {}))
                agent = Agent("sequential", tmp_path / "effects", ledger, adapter=adapter)
                if name == pair[1]:
                    agent.recover(run)
                    continue
                send, sent = adapter.send, count()

                def sending(payload: Any, how: Any, send: Any = send, sent: Any = sent) -> Any:
                    if next(sent) == requests:
                        raise _StoppedError
                    return send(payload, how)

                adapter.send = sending  # type: ignore[method-assign]
                with pytest.raises(_StoppedError):
                    agent.execute(Order(), run_id=run)
        plans = [
            {"provider": name, "kind": "sequential", "stream": False, "folder": str(tmp_path)}
            for name in pair
        ]
        first, last = (elsewhere.again(ledger, run, plan, elsewhere.World())[2] for plan in plans)
        assert last.divergence is None
        assert last.version == ledger.head(run)
        assert sum(one.tag == "model.called" for one in last.taken) == requests + 1
        assert first.divergence is not None
        assert first.divergence.cause == "model changed"


@pytest.mark.parametrize(("name", "stream"), WAYS, ids=NAMES)
def test_another_provider_is_a_divergence(library: Library, name: str, stream: bool) -> None:
    """What one wire format recorded, another one's agent parts from at once."""
    plan = library.plans(name, stream)["one"]
    other = {**plan, "provider": next(one for one in PROVIDERS if one.split("-")[0] not in name)}
    with Ledger.open(plan["url"]) as ledger:
        found = elsewhere.again(ledger, UUID(plan["runs"][0]), other, elsewhere.World())[2]
    assert found.divergence is not None
    assert found.divergence.cause == "model changed"


# --- other processes ---------------------------------------------------------------------------


def in_process(
    plans: list[dict[str, Any]], python: str, environment: dict[str, str]
) -> dict[str, Any]:
    """What another process says of these runs."""
    done = subprocess.run(
        [*without_network(), python, "-W", "error", "-m", "tests.replay.elsewhere"],
        input=json.dumps(plans),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def in_processes(
    plans: list[dict[str, Any]], *those: tuple[str, dict[str, str]]
) -> list[dict[str, Any]]:
    """What several say, all at the same time."""
    with ThreadPoolExecutor(len(those)) as pool:
        return list(pool.map(lambda one: in_process(plans, *one), those))


def check_all(plans: list[dict[str, Any]], said: dict[str, Any]) -> None:
    """Every run replayed, and nothing was touched: no socket, no client, no handler, no SDK."""
    assert (said["touched"], said["imported"]) == ([], [])
    if without_network():
        assert said["network"] == ["lo"]
    for plan, runs in zip(plans, said["replays"], strict=True):
        with Ledger.open(plan["url"]) as ledger:
            for run, found in zip(plan["runs"], runs, strict=True):
                check(found, ledger.head(run))


def test_in_other_processes_with_other_hashes(library: Library) -> None:
    """All of them, from three processes whose sets have another order each."""
    plans = library.all()
    seeds = [{"PYTHONHASHSEED": seed} for seed in ("0", "1", "4242")]
    said = in_processes(plans, *((sys.executable, seed) for seed in seeds))
    for one in said:
        check_all(plans, one)
    assert len({one["hash"] for one in said}) == 3
    assert all(one["replays"] == said[0]["replays"] for one in said)


# --- other Pythons -----------------------------------------------------------------------------

_NEEDED = "import eventsourcing, msgspec, pydantic, uuid_utils, click, rich, sys"


def pythons() -> list[tuple[str, dict[str, str]]]:
    """The interpreters of this machine that can run the program, with the environment they need.

    One that lacks the libraries is tried with ours: what is compiled fits the same version only.
    """
    names = [shutil.which(f"python3.{minor}") or "" for minor in range(11, 15)]
    roots = [Path.home() / ".pyenv" / "versions", Path("/opt/python")]
    names += [str(found) for root in roots for found in root.glob("3.1[1-9]*/bin/python3")]
    others = {os.path.realpath(name): None for name in names if name}
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    source = str(ROOT / "src")
    tries = [
        (name, {"PYTHONPATH": path})
        for name in (sys.executable, *others)
        for path in (source, f"{source}{os.pathsep}{ours}")
    ]
    with ThreadPoolExecutor(4) as pool:
        able = [one for one, can in zip(tries, pool.map(_can_run, tries), strict=True) if can]
    return list({python: (python, environment) for python, environment in reversed(able)}.values())


def _can_run(tried: tuple[str, dict[str, str]]) -> bool:
    python, environment = tried
    done = subprocess.run(
        [python, "-c", f"{_NEEDED}; sys.exit(sys.version_info < (3, 11))"],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
    )
    return done.returncode == 0


def test_in_other_pythons(library: Library) -> None:
    """In every Python here that can import what the program needs; in this one at least."""
    plans = [library.plans(name, True)["parallel"] for name in PROVIDERS]
    found = in_processes(plans, *pythons())
    for said in found:
        check_all(plans, said)
    assert sys.version.split()[0] in {said["python"] for said in found}


# --- the guards --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROVIDERS)
def test_an_agent_that_asks_is_found_out(name: str, tmp_path: Path) -> None:
    """The guards of these tests hold: a live run with them touches a client, and is told so."""
    world = elsewhere.World()
    adapter = elsewhere.adapter_of(name, "one", stream=False)
    with Ledger.open("memory://") as ledger, elsewhere.no_clients(world):
        agent = Agent("one", tmp_path / "effects", ledger, point=world.point, adapter=adapter)
        with pytest.raises(PromptEvaluationError):
            agent.execute(Order())
    assert set(world.touched) <= {"send", "client", "limited", "make_client"}
    assert world.touched


def test_a_socket_is_found_out() -> None:
    """In a process that listens for them, and where the class was put in its place."""
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            (
                "import socket, sys\n"
                "from tests.replay.elsewhere import World\n"
                "world = World()\n"
                "sys.addaudithook(world.hears)\n"
                "try: socket.create_connection(('127.0.0.1', 9))\n"
                "except PermissionError: print(world.touched)"
            ),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout.strip() == "['socket.getaddrinfo']"
    with pytest.raises(PermissionError):
        elsewhere.NoSocket()
