"""Runs of real SDKs, run again by another process that has no network: not even a socket.

    python -m tests.replay.elsewhere < PLAN

The plan says which ledger holds which runs of which agents. What came of each is said as JSON,
with what this process is: its hashes, its Python, its network, and which SDKs it imported.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.conformance.providers.harness import PROVIDERS
from tests.crash.agents import Agent, parallel_tools
from turnledger.adapters.providers.sdk import SdkAdapter
from turnledger.ledger import Ledger
from turnledger.runtime.replaying.replay import Replayed, replay

# Where a provider would be. Nobody listens there.
NOWHERE = "http://127.0.0.1:9"
SDKS = ("openai", "litellm", "anthropic", "google.genai")
# What makes a provider think, where it has to be asked to.
OPTIONS: dict[str, dict[str, Any]] = {
    "openai-responses": {"request_options": {"reasoning": {"effort": "low"}}},
}
_TOUCHES = ("socket.__new__", "socket.connect", "socket.bind", "socket.getaddrinfo")


class World:
    """What an agent that is run again must leave alone, and how often it did not."""

    def __init__(self) -> None:
        self.touched: list[str] = []

    def point(self, name: str) -> None:
        """Called within every handler of the agents."""
        self.touched.append(name)
        raise AssertionError(f"{name}: nothing is done in a replay")

    def hears(self, event: str, args: Any) -> None:
        """An audit hook."""
        if event in _TOUCHES:
            self.touched.append(event)
            raise PermissionError(f"{event}: there is no network")


class NoSocket(socket.socket):
    """A socket that can't be made."""

    world = World()

    def __new__(cls, *args: Any, **kwargs: Any) -> NoSocket:
        cls.world.hears("socket.__new__", args)
        return super().__new__(cls, *args, **kwargs)


@contextmanager
def no_clients(world: World) -> Iterator[None]:
    """Whoever asks an adapter for its client, or makes one, is found out."""
    kinds = [SdkAdapter, *SdkAdapter.__subclasses__()]
    kept = [
        (kind, name, vars(kind)[name])
        for kind in kinds
        for name in ("client", "make_client", "send", "limited")
        if name in vars(kind)
    ]

    def refuse(name: str) -> Any:
        def asked(*args: Any, **kwargs: Any) -> Any:
            world.touched.append(name)
            raise AssertionError(f"{name}: no client is needed for a replay")

        return property(asked) if name == "client" else asked

    for kind, name, _ in kept:
        setattr(kind, name, refuse(name))
    try:
        yield
    finally:
        for kind, name, whole in kept:
            setattr(kind, name, whole)


def adapter_of(provider: str, kind: str, *, stream: bool) -> SdkAdapter[Any]:
    """An agent's adapter, whose provider is nowhere."""
    options = {"parallel_tools": parallel_tools(kind), **OPTIONS.get(provider, {})}
    return PROVIDERS[provider].adapter(NOWHERE, stream=stream, **options)


def again(ledger: Ledger, run: UUID, plan: dict[str, Any], world: World) -> tuple[Replayed, ...]:
    """A run folded, and run again by its own kind of agent, whose provider is nowhere."""
    adapter = adapter_of(plan["provider"], plan["kind"], stream=plan["stream"])
    effects = Path(plan["folder"]) / "effects-of-a-replay"
    with Ledger.open("memory://") as nobody:
        agent = Agent(plan["kind"], effects, nobody, point=world.point, adapter=adapter)
        declared = agent.loop_host.create_session().declarations
        agent.session = None
        found = (
            replay(ledger, run),
            replay(ledger, run, declarations=declared),
            replay(ledger, run, loop=agent),
        )
        assert next(iter(nobody.runs()), None) is None
    assert not effects.exists()
    return found


def told(found: tuple[Replayed, ...]) -> list[dict[str, Any]]:
    """What came of the replays of a run, as JSON."""
    return [
        {
            "depth": one.depth,
            "version": one.version,
            "divergence": str(one.divergence) if one.divergence else None,
            "state": one.state.state_digest,
            "outcome": one.state.outcome_digest,
        }
        for one in found
    ]


def main() -> None:
    world = World()
    sys.addaudithook(world.hears)
    plans = json.load(sys.stdin)
    said = []
    with no_clients(world):
        for plan in plans:
            with Ledger.open(plan["url"]) as ledger:
                said.append([told(again(ledger, UUID(run), plan, world)) for run in plan["runs"]])
    print(
        json.dumps(
            {
                "replays": said,
                "touched": world.touched,
                "imported": [name for name in SDKS if name in sys.modules],
                "python": sys.version.split()[0],
                "hash": hash("turnledger"),
                "network": [name for _, name in socket.if_nameindex()],
            }
        )
    )


if __name__ == "__main__":
    main()
