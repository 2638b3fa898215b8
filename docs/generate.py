"""Generates pages: the reference (commands, events, errors, APIs) from the code, and requirements.

docs/requirements.md is made from the table of mutants, tests/mutants. The pages of the API name
what `make docs` fills with signatures and docstrings (mkdocstrings). docs/reference/screens are
what commands print on terminals of two widths (`docs.screens`).

`python -m docs.generate` writes them; with `--check` it compares them, as a test does.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click
import msgspec
from msgspec import inspect as types

import turnledger as front_door
from docs.http_pages import http_page, openapi_document, problems_page
from docs.page_keys import page_keys
from docs.screens import SCREENS, WIDTHS, rendered
from docs.website.markdown import NOTE, table
from tests.mutants.table import page, read_table
from turnledger import projections
from turnledger.adapters.cli import turnledger
from turnledger.adapters.cli.shared.command import COMMON, LedgerCommand, LedgerGroup
from turnledger.adapters.cli.shared.exit_codes import MEANINGS, exit_code_of
from turnledger.ledger import TurnledgerError, errors
from turnledger.ledger.events.messages import (
    InnerMessage,
    MediaContent,
    TextContent,
    ToolCallRecord,
)
from turnledger.ledger.events.types import (
    CATALOGUE,
    Event,
    TokenLimits,
    TokenUsage,
    UsedOverrides,
    fields_since,
)
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.runtime import steps

FOLDER = Path(__file__).parent
PACKAGES = ("ledger", "projections", "runtime", "adapters")
PARTS = (
    InnerMessage,
    ToolCallRecord,
    TextContent,
    MediaContent,
    TokenLimits,
    TokenUsage,
    UsedOverrides,
)

OUTSIDE = (
    f"Event catalogue {CATALOGUE}. As JSON an event is "
    '`{"type": TAG, "event_id": UUID, "data": {FIELDS}}`; a record adds `run_id`, '
    "`version`, `position`, `recorded_at` and `digest`. Fields that have their default "
    "value are not stored."
)


# --- commands ----------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its arguments, options and an example; the exit codes."""
    group = turnledger
    lines = [
        "# Commands",
        NOTE,
        _paragraphs(group.help),
        "    turnledger [OPTIONS] COMMAND [ARGS]...",
        _options(group),
        "## Exit codes",
        table(("code", "meaning"), [(str(int(c)), text) for c, text in MEANINGS.items()]),
        "Which error gives which code is in [errors](errors.md).",
        "Every command as a terminal of 80 columns shows it: "
        + ", ".join(f"[{one}](screens/{one}-80.txt)" for one in (*SCREENS, "help"))
        + ".",
    ]
    commands = group.load_all()
    for heading, section in group.sections.items():
        lines.append(f"## {heading}")
        for name, command in commands.items():
            if name.partition(" ")[0] in section:
                lines.extend(_command(name, command))
    return "\n\n".join(line for line in lines if line) + "\n"


def _command(name: str, command: click.Command) -> Iterator[str]:
    arguments = " ".join(_placeholder(p) for p in command.params if isinstance(p, click.Argument))
    yield f"### {name}"
    yield f"    turnledger {name} [OPTIONS] {arguments}".rstrip()
    yield _paragraphs(command.help)
    yield _options(command)
    if isinstance(command, LedgerCommand) and command.example:
        yield "Example:"
        yield "\n".join(f"    {line}" for line in command.example.splitlines())


def _placeholder(argument: click.Argument) -> str:
    text = argument.metavar or (argument.name or "").upper()
    if isinstance(argument.type, click.Choice):
        text = "|".join(map(str, argument.type.choices))
    return text if argument.required or argument.nargs != 1 else f"[{text}]"


def _options(command: click.Command) -> str:
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        if option.name in COMMON and not isinstance(command, LedgerGroup):
            continue
        value = option.metavar or ""
        if isinstance(option.type, click.Choice):
            value = "|".join(map(str, option.type.choices))
        names = ", ".join(f"`{name}`" for name in option.opts)
        needed = " Required." if option.required else ""
        rows.append((f"{names} {_code(value)}".strip(), (option.help or "") + needed))
    return table(("option", "meaning"), rows)


# --- events ------------------------------------------------------------------------


def events_page() -> str:
    """Every event with its tag, meaning and fields."""
    lines = [
        "# Events",
        NOTE,
        OUTSIDE,
    ]
    for kind in get_args(Event):
        lines.extend([f"## {kind.tag}", f"`{kind.__name__}`. {_doc(kind)}", _fields(kind)])
    lines.append("## Parts of events")
    for part in PARTS:
        lines.extend([f"### {part.__name__}", _doc(part), _fields(part)])
    lines.append("## Retired types")
    lines.append("Read as the type that replaced them; never written.")
    lines.append(
        table(("type", "read as"), [(f"`{t}`", f"`{u.successor}`") for t, u in UPCASTERS.items()])
    )
    return "\n\n".join(line for line in lines if line) + "\n"


def _fields(kind: type[msgspec.Struct]) -> str:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    rows = []
    if info.tag_field is not None:
        rows.append((f"`{info.tag_field}`", f"`{msgspec.json.encode(info.tag).decode()}`", ""))
    for field in info.fields:
        since = fields_since(kind).get(field.name)
        kept = f"{_default(field)}; since catalogue {since}" if since else _default(field)
        rows.append((f"`{field.encode_name}`", type_text(field.type), kept))
    return table(("field", "type", "default"), rows)


def _default(field: types.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        made = field.default_factory
        if made in (dict, list, tuple, set):
            return f"`{msgspec.json.encode(made()).decode()}`"
        return "generated if missing"
    return f"`{msgspec.json.encode(field.default).decode()}`"


def type_text(kind: types.Type) -> str:
    """A type in words that need no Python."""
    words: dict[type[types.Type], Callable[[Any], str]] = {
        types.AnyType: lambda t: "any JSON",
        types.NoneType: lambda t: "null",
        types.BoolType: lambda t: "true or false",
        types.IntType: lambda t: "whole number" + _range(t),
        types.FloatType: lambda t: "number" + _range(t),
        types.StrType: lambda t: "text" + _length(t),
        types.UUIDType: lambda t: "UUID",
        types.DateTimeType: lambda t: "time (with its zone)",
        types.LiteralType: lambda t: " or ".join(f'`"{v}"`' for v in t.values),
        types.StructType: lambda t: t.cls.__name__,
        types.VarTupleType: lambda t: f"list of {type_text(t.item_type)}",
        types.ListType: lambda t: f"list of {type_text(t.item_type)}",
        types.DictType: lambda t: f"object of {type_text(t.key_type)} to {type_text(t.value_type)}",
        types.UnionType: lambda t: " or ".join(map(type_text, t.types)),
        types.Metadata: lambda t: type_text(t.type),
    }
    return words[type(kind)](kind)


def _range(kind: types.IntType | types.FloatType) -> str:
    return f" ({kind.ge} or more)" if kind.ge is not None else ""


def _length(kind: types.StrType) -> str:
    return f" (at most {kind.max_length} characters)" if kind.max_length is not None else ""


# --- errors ------------------------------------------------------------------------


def errors_page() -> str:
    """Every error: the class tree, meanings, and exit codes."""
    tree = (errors.__doc__ or "").partition("The tree:")[2].strip("\n")
    lines = [
        "# Errors",
        NOTE,
        "All errors derive from `TurnledgerError`. These are in `turnledger.ledger`:",
        "\n".join(f"    {line}" for line in inspect.cleandoc(tree).splitlines()),
    ]
    lines.append(_errors(errors))
    lines.append("These are in `turnledger.projections`:")
    lines.append(_errors(projections))
    lines.append("These are in `turnledger.runtime.steps`:")
    lines.append(_errors(steps))
    return "\n\n".join(lines) + "\n"


def _errors(module: ModuleType) -> str:
    # A package may import its names on first use: ask for each.
    names = getattr(module, "__all__", list(vars(module)))
    kinds = (getattr(module, name) for name in names)
    rows = [
        (f"`{kind.__name__}`", _doc(kind), str(int(_exit_code(kind))))
        for kind in kinds
        if inspect.isclass(kind) and issubclass(kind, TurnledgerError)
    ]
    return table(("error", "meaning", "exit code"), rows)


def _exit_code(kind: type[TurnledgerError]) -> int:
    return exit_code_of(kind.__new__(kind))


# --- the API -----------------------------------------------------------------------


def api_page(package: str) -> str:
    """Every public name of a package: classes and functions, events, errors."""
    module = import_module(f"turnledger.{package}")
    groups: dict[str, list[str]] = {"Classes and functions": [], "Events": [], "Errors": []}
    for name in module.__all__:
        value = getattr(module, name)
        kind = "Classes and functions"
        if value in get_args(Event):
            kind = "Events"
        elif inspect.isclass(value) and issubclass(value, Exception):
            kind = "Errors"
        groups[kind].append(f"::: turnledger.{package}.{name}")
    more = {"Events": "[All fields](../events.md)", "Errors": "[Exit codes](../errors.md)"}
    lines = [f"# turnledger.{package}", NOTE, _doc(module)]
    for title, names in groups.items():
        if names:
            lines.extend([f"## {title}", more.get(title, ""), *names])
    return "\n\n".join(line for line in lines if line) + "\n"


def front_door_page() -> str:
    """The names of `turnledger`: those of its own, and where each of the others is described."""
    rows, own = [], []
    for name in front_door.__all__:
        entry = entry_of(name)
        if entry == f"turnledger.{name}":
            own.append(f"::: {entry}")
        home = entry.split(".")[1] + ".md" if entry.count(".") == 2 else ""
        rows.append((f"[`{name}`]({home}#{entry})", _summary(name, getattr(front_door, name))))
    lines = ["# turnledger", NOTE, _doc(front_door), "## Agents", *own, "## All names"]
    return "\n\n".join([*lines, table(("name", "meaning"), rows)]) + "\n"


def entry_of(name: str) -> str:
    """The anchor of a name of the front door: its package's, or its own if none has it."""
    value = getattr(import_module("turnledger"), name)
    for package in PACKAGES:
        module = import_module(f"turnledger.{package}")
        if name in module.__all__ and getattr(module, name) is value:
            return f"turnledger.{package}.{name}"
    return f"turnledger.{name}"


def _summary(name: str, value: object) -> str:
    """The first line of a docstring; that of a constant stands below it in its module."""
    if callable(value):
        return (inspect.getdoc(value) or "").partition("\n")[0]
    body = ast.parse(inspect.getsource(sys.modules[type(value).__module__])).body
    for before, after in pairwise(body):
        if isinstance(before, ast.Assign) and ast.unparse(before.targets[0]) == name:
            return str(ast.literal_eval(after.value)) if isinstance(after, ast.Expr) else ""
    return ""


# --- text --------------------------------------------------------------------------


def _doc(thing: object) -> str:
    return _paragraphs(inspect.getdoc(thing))


def _paragraphs(text: str | None) -> str:
    """Paragraphs on one line each, as Markdown has them."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _screen(section: str, width: int) -> str:
    return rendered(width)[section]


PAGES: dict[str, Callable[[], str]] = {
    "reference/api/turnledger.md": front_door_page,
    **{f"reference/api/{name}.md": partial(api_page, name) for name in PACKAGES},
    "reference/api/steps.md": partial(api_page, "runtime.steps"),
    "reference/commands.md": commands_page,
    "reference/errors.md": errors_page,
    "reference/events.md": events_page,
    "reference/http.md": http_page,
    "reference/openapi.json": openapi_document,
    "reference/page-keys.md": page_keys,
    "reference/problems.md": problems_page,
    "requirements.md": lambda: page(read_table()),
    **{
        f"reference/screens/{section}-{width}.txt": partial(_screen, section, width)
        for section in (*SCREENS, "help")
        for width in WIDTHS
    },
}


def stale_pages() -> list[str]:
    """The pages that are missing or differ from what the code gives."""
    return [
        name
        for name, render in PAGES.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text() != render()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if stale")
    if parser.parse_args().check:
        if stale := stale_pages():
            sys.exit(f"Not current: {', '.join(stale)}. Run `python -m docs.generate`.")
        return
    for name, render in PAGES.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(render())


if __name__ == "__main__":
    main()
