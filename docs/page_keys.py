"""The keys of the time-travel page, from the table that binds them."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

from docs.website.markdown import NOTE, table

SOURCES = Path(__file__).parents[1] / "adapters/web/ui/src/core"
NAMES = {
    " ": "Space",
    "ArrowDown": "↓",
    "ArrowUp": "↑",
    "Control+k": "Ctrl+K",
    "Meta+k": "⌘K",
}
OUTSIDE = (
    "A key is what it writes, on any keyboard; none acts while text is typed. `?` shows this on "
    "the page, and Ctrl+K lists what can be done there by name."
)


def page_keys() -> str:
    """Every action of the page with its keys, and what the symbols of events mean."""
    actions = json.loads((SOURCES / "actions.json").read_text())
    kinds = json.loads((SOURCES / "kinds.json").read_text())
    parts = [
        "# Keys of the page",
        NOTE,
        OUTSIDE,
    ]
    for group, found in groupby(actions, lambda action: action["group"]):
        rows = [[_keys(action["keys"]), action["name"]] for action in found]
        parts += [f"## {group}", table(["keys", "action"], rows)]
    symbols = [[kind["symbol"], f"`{kind['character']}`", kind["meaning"]] for kind in kinds]
    parts += [
        "## Symbols of events",
        "The character is the one that `turnledger shape` prints.",
        table(["symbol", "character", "meaning"], symbols),
    ]
    return "\n\n".join(parts) + "\n"


def _keys(keys: list[str]) -> str:
    return ", ".join(f"`{NAMES.get(key, key)}`" for key in keys)
