"""A program that reads a stream of a wrapped client, to be killed in the middle of it.

python -m tests.unit.adapters.clients.streaming_program WAY URL LEDGER
"""

from __future__ import annotations

import asyncio
import sys
import warnings

from tests.unit.adapters.clients.wrapped import WAYS, Way
from turnledger.adapters.clients.wrap import wrap
from turnledger.runtime.steps import run


async def main(way: Way, url: str, ledger: str) -> None:
    made = wrap(way.client(url))
    client = made.aio.models if str(way).startswith("gemini-async") else made
    async with run("killed", ledger=ledger):
        said = [("user", "First?")]
        first = await way.ask(client, said)
        said += [("assistant", first), ("user", "Second?")]
        async for piece in way.pieces(client, said):
            print(piece, end="", flush=True)


if __name__ == "__main__":
    name, url, ledger = sys.argv[1:]
    warnings.simplefilter("ignore")
    asyncio.run(main(next(way for way in WAYS if str(way) == name), url, ledger))
