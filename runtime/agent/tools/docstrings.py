"""Docstrings of tools: the description, and a text for each parameter.

Google ("Args:"), NumPy ("Parameters" over a line of dashes) and reST (":param name:") are read.
The description is what stands before the first section; "Returns" and the like are for people.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_PARAMETERS = ("args", "arguments", "parameters", "params", "other parameters")
_OTHERS = (
    "attributes",
    "example",
    "examples",
    "note",
    "notes",
    "raises",
    "references",
    "returns",
    "see also",
    "warning",
    "warnings",
    "yields",
)
# "limit (int, optional): How many." in Google's style; in NumPy's, "limit : int, optional".
_GOOGLE = re.compile(r"\*{0,2}(?P<names>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY = re.compile(r"\*{0,2}(?P<names>\w+(\s*,\s*\w+)*)\s*(:.*)?")
_REST = re.compile(r":(?:param|arg|key)\s+(.*\s)?(?P<names>\w+)\s*:\s*(?P<text>.*)")
_REST_OTHER = re.compile(r":(\w+)(\s[^:]*)?:")


class Documented(NamedTuple):
    """What a docstring says of a function, and of its parameters by name."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Documented:
    """The description in a docstring, and its texts about parameters; both may be empty."""
    lines = inspect.cleandoc(text or "").splitlines()
    found: dict[str, list[str]] = {}
    description: list[str] = []
    section, names, indent = "", [""], 0
    for place, line in enumerate(lines):
        below = lines[place + 1] if place + 1 < len(lines) else ""
        depth = len(line) - len(line.lstrip())
        if heading := _heading(line, below):
            section, names, indent = heading, [""], -1
        elif field := _REST.fullmatch(line.strip()):
            section, names, indent = "rest", [field["names"]], depth
            found[names[0]] = [field["text"]]
        elif _REST_OTHER.match(line.strip()) and section in ("", "rest"):
            section, names = "other", [""]
        elif not section:
            description.append(line)
        elif section == "other" or not line.strip() or _is_rule(line):
            continue
        elif section == "rest" and depth <= indent:
            section = "other"  # text after the fields
        elif section == "rest" or (indent >= 0 and depth > indent):
            for name in names:
                found.setdefault(name, []).append(line.strip())
        elif section == "google" and depth == 0:
            section = "other"
        else:
            names, indent = _entry(section, line, found), depth
    texts = {name: " ".join(filter(None, parts)) for name, parts in found.items() if name}
    return Documented("\n".join(description).strip(), {k: v for k, v in texts.items() if v})


def _heading(line: str, below: str) -> str:
    """The style of the section that begins here: "google", "numpy", or "other" to be left out."""
    if not line.strip() or line[0].isspace():
        return ""
    name = line.strip().lower()
    if _is_rule(below) and name in (*_PARAMETERS, *_OTHERS):
        return "numpy" if name in _PARAMETERS else "other"
    if name.endswith(":") and name[:-1] in (*_PARAMETERS, *_OTHERS):
        return "google" if name[:-1] in _PARAMETERS else "other"
    return ""


def _is_rule(line: str) -> bool:
    return len(line.strip()) > 2 and not line.strip().strip("-=")


def _entry(section: str, line: str, found: dict[str, list[str]]) -> list[str]:
    """Begin the text of one parameter, or of several; returns their names."""
    match = (_GOOGLE if section == "google" else _NUMPY).fullmatch(line.strip())
    if match is None:
        return [""]
    names = [name.strip() for name in match["names"].split(",")]
    for name in names:
        found[name] = [match["text"]] if section == "google" else []
    return names
