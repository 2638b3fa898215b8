"""Commands `prompts list`, `show`, `diff`, `blame` and `runs`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

import click
import msgspec

from turnledger.adapters.cli.prompts.stream import (
    PromptName,
    at_option,
    not_found,
    prompt_argument,
    state_at,
    version_of,
)
from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import Format, Printer, say
from turnledger.adapters.cli.shared.views import RecordView, view_at, view_of
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import EvaluationStarted, Ledger, PromptOverrideSet, RunInfo, UsedOverrides
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.errors import DAMAGE
from turnledger.projections.views.prompt import PromptOverride, PromptOverrides

# Characters of a digest in a table.
SHORT = 12

# --- list ---------------------------------------------------------------------------


class PromptView(msgspec.Struct, frozen=True):
    """A prompt with overrides as JSON: the version that set each text, and its tags."""

    prompt: str
    stream: str
    version: int
    overrides: dict[str, int]
    tags: dict[str, int]
    changed_at: str


@command("list", example="turnledger prompts list -o json")
def list_() -> None:
    """List the prompts that have overrides.

    A prompt whose stream is damaged is skipped and named, and the exit code is 5.
    """
    out, skipped = printer(), SkippedRuns()
    with open_ledger() as ledger:
        out.listing(
            list(_prompts(ledger, skipped)),
            ("prompt", "version", "overrides", "tags", "changed"),
            lambda one: (
                one.prompt,
                one.version,
                " ".join(one.overrides),
                _tags(one.tags),
                one.changed_at,
            ),
            nothing="No prompt has overrides.",
        )
    finish(skipped.code)


def _prompts(ledger: Ledger, skipped: SkippedRuns) -> Iterator[PromptView]:
    found: list[RunInfo] = list(ledger.runs(kind="prompt", on_damage=skipped))
    for info in sorted(found, key=lambda one: one.prompt):
        try:
            state = view_at(ledger, info.run_id, None, PromptOverrides())
        except DAMAGE as error:
            skipped(str(info.run_id), error)
            continue
        yield PromptView(
            info.prompt,
            str(info.run_id),
            info.version,
            {path: state.overrides[path].version for path in sorted(state.overrides)},
            dict(sorted(state.tags.items())),
            moment_text(to_micros(info.updated_at)),
        )


def _tags(tags: dict[str, int]) -> str:
    return " ".join(f"{name}={version}" for name, version in sorted(tags.items()))


# --- show ---------------------------------------------------------------------------


@command(
    example="""\
turnledger prompts show acme/support/answer
turnledger prompts show acme/support/answer --at stable -o json""",
)
@prompt_argument
@at_option
def show(prompt: PromptName, at: str) -> None:
    """Show the overrides of a prompt.

    Each is printed with its path, the version that set it, who did so, and the note. A path is
    a section's, or "tool:NAME" for a tool's description.
    """
    out = printer()
    with open_ledger() as ledger:
        version = version_of(ledger, prompt, at)
        state = state_at(ledger, prompt, version)
    found = dict(sorted(state.overrides.items()))
    value = {"prompt": str(prompt), "version": version, "tags": state.tags, "overrides": found}
    out.one(value, lambda: _print_overrides(out, found))
    if not found:
        say(f"Prompt {prompt} has no overrides at version {version}: its own texts count.")


def _print_overrides(out: Printer, found: dict[str, PromptOverride]) -> None:
    for place, (path, override) in enumerate(found.items()):
        if place:
            out.line("")
        out.styled((visible(path), "bold"), (f"  {_origin(override)}", ""))
        for line in override.body.split("\n"):
            out.line(f"  {visible(line)}".rstrip())


def _origin(override: PromptOverride) -> str:
    by = f", set by {visible(override.set_by)}" if override.set_by else ""
    note = f": {visible(override.note)}" if override.note else ""
    return f"version {override.version}{by}{note}"


# --- diff ---------------------------------------------------------------------------


@command(
    example="""\
turnledger prompts diff acme/support/answer 3 latest
turnledger prompts diff acme/support/answer stable latest -o json""",
)
@prompt_argument
@click.argument("a")
@click.argument("b")
def diff(prompt: PromptName, a: str, b: str) -> None:
    """Show how a prompt's overrides differ between A and B.

    A and B are versions or tags; version 0 is before the first override. A text that is not
    overridden is shown as empty, and is null in JSON: the prompt's own text counts.
    """
    out = printer()
    with open_ledger() as ledger:
        before, after = (
            state_at(ledger, prompt, version_of(ledger, prompt, at)).overrides for at in (a, b)
        )
    changes = [
        {"path": path, "before": _body(before, path), "after": _body(after, path)}
        for path in sorted({*before, *after})
        if _body(before, path) != _body(after, path)
    ]
    if out.form is not Format.TABLE:
        out.many(changes)
        return
    for change in changes:
        _print_diff(out, change, a, b)
    if not changes:
        say(f"The overrides of {prompt} at {a} and at {b} are equal.")


def _body(overrides: dict[str, PromptOverride], path: str) -> str | None:
    return overrides[path].body if path in overrides else None


def _print_diff(out: Printer, change: dict[str, Any], a: str, b: str) -> None:
    before, after = ((change[side] or "").split("\n") for side in ("before", "after"))
    path = change["path"]
    names = (f"{path} at {a}", f"{path} at {b}")
    for line in unified_diff(
        before if change["before"] is not None else [],
        after if change["after"] is not None else [],
        *names,
        lineterm="",
    ):
        out.styled((visible(line), _STYLES.get(line[:1], "")))


_STYLES = {"+": "green", "-": "red", "@": "cyan"}


# --- blame --------------------------------------------------------------------------


@command(
    example="""\
turnledger prompts blame acme/support/answer tone
turnledger prompts blame acme/support/answer tool:search --at stable -o json""",
)
@prompt_argument
@click.argument("path")
@at_option
def blame(prompt: PromptName, path: str, at: str) -> None:
    """Show the event that set a text of a prompt.

    PATH is a section's path, or "tool:NAME". -o json prints the record, as `show` does.
    """
    out = printer()
    with open_ledger() as ledger:
        version = version_of(ledger, prompt, at)
        overrides = state_at(ledger, prompt, version).overrides
        if path not in overrides:
            known = ", ".join(sorted(overrides)) or "none"
            not_found(
                f"Prompt {prompt} has no override of {path!r} at version {version}: its own text "
                f"counts. Overridden are: {known}."
            )
        record = ledger.record(prompt.stream, overrides[path].version)
    event = record.event
    assert isinstance(event, PromptOverrideSet)
    view = view_of(record)
    out.one(view, lambda: _print_set(out, view, event))


def _print_set(out: Printer, view: RecordView, event: PromptOverrideSet) -> None:
    out.pairs(
        [
            ("version", view.version),
            ("set at", view.recorded_at),
            ("set by", event.set_by),
            ("note", event.note),
            ("event", view.event_id),
            ("text", event.body),
        ]
    )


# --- runs ---------------------------------------------------------------------------


class UseView(msgspec.Struct, frozen=True):
    """An evaluation of a prompt as JSON, and the overrides that it was pinned to."""

    run_id: str
    version: int
    recorded_at: str
    prompt_digest: str
    overrides: UsedOverrides | None


@command("runs", example="turnledger prompts runs acme/support/answer -o jsonl")
@prompt_argument
def runs(prompt: PromptName) -> None:
    """List the runs that used a prompt, and with which overrides.

    One line for each evaluation, in the order of the ledger, which is read as a whole: the tag
    that was asked for, the version that it named then, the texts that were replaced, and the
    digest of what replaced them. Without an overrides store these are empty. Records that can't
    be read are skipped: their runs are named, and the exit code is 5.
    """
    out, skipped = printer(), SkippedRuns()
    with open_ledger() as ledger:
        out.listing(
            _uses(ledger, prompt, skipped),
            ("run", "evaluated", "store", "tag", "version", "overrides", "digest"),
            lambda use: (use.run_id, use.recorded_at, *_pin(use.overrides)),
            nothing=f"No run has used {prompt}.",
        )
    finish(skipped.code)


def _pin(used: UsedOverrides | None) -> tuple[Any, ...]:
    if used is None:
        return (None,) * 5
    return used.store, used.tag, used.version, " ".join(used.paths), used.digest[:SHORT]


def _uses(ledger: Ledger, prompt: PromptName, skipped: SkippedRuns) -> Iterator[UseView]:
    for record in ledger.tail():
        if record.tag != EvaluationStarted.tag:
            continue
        try:
            event = record.event
        except DAMAGE:
            skipped.records([f"{record.run_key} {record.version}"])
            continue
        assert isinstance(event, EvaluationStarted)
        if (event.prompt_ns, event.prompt_key) == (prompt.ns, prompt.key):
            view = view_of(record)
            yield UseView(
                view.run_id, view.version, view.recorded_at, event.prompt_digest, event.overrides
            )
