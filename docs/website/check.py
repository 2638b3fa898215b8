"""Checks a built site: nothing comes from another origin, and every public name is described.

`python -m docs.website.check site` prints what is wrong and exits with 1. Dead links are mkdocs'
own check (`--strict`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

from docs.generate import PACKAGES, entry_of, front_door

# What a browser fetches by itself; a link (`a`) it does not.
FETCHED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
IN_STYLE = re.compile(r"""(?:url\(|@import\s*)\s*["']?((?:https?:)?//[^"')\s]+)""")


class Fetches(HTMLParser):
    """Collects the addresses that a page has the browser fetch, and the ids that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in FETCHED and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given.get(FETCHED[tag]) or "")
        self.addresses.extend(IN_STYLE.findall(given.get("style") or ""))
        self.ids.add(given.get("id") or "")


def problems(site: Path) -> Iterator[str]:
    """What is wrong with the site in a folder."""
    ids: set[str] = set()
    for file in sorted(site.rglob("*.html")):
        page = Fetches()
        page.feed(file.read_text())
        ids |= page.ids
        for address in page.addresses:
            if re.match(r"(?:\w+:)?//", address):
                yield f"{file.relative_to(site)} fetches {address}"
    for file in sorted(site.rglob("*.css")):
        for address in IN_STYLE.findall(file.read_text()):
            yield f"{file.relative_to(site)} fetches {address}"
    entries = {entry_of(name) for name in front_door.__all__}
    for package in PACKAGES:
        entries |= {
            f"turnledger.{package}.{n}" for n in import_module(f"turnledger.{package}").__all__
        }
    yield from (f"no entry for {entry}" for entry in sorted(entries - ids))


def main() -> None:
    found = list(problems(Path(sys.argv[1])))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
