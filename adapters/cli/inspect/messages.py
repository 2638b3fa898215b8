"""Command `messages`: a run's conversation as a chat.

Text is indented deeper than role names, calls and results, so that it can't be mistaken for one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, zip_longest
from typing import Any
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, fail, open_ledger, printer
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import Format, Printer, say, terminal_width
from turnledger.adapters.cli.shared.parameters import at_option, run_argument
from turnledger.adapters.cli.shared.views import records_until
from turnledger.adapters.terminal_text import safe_json, visible, visible_lines
from turnledger.projections import (
    ChatTurn,
    MediaBlock,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.views.one_conversation import OneConversation, one_conversation

# Longer lines are hard to read, also on a wide terminal.
WIDEST = 100
INDENT = 4
# How many other evaluations are named.
MOST_NAMED = 20
ROLES = {"system": "bold magenta", "user": "bold cyan", "assistant": "bold green"}
CALL = "yellow"


@command(
    example="""\
turnledger messages 099a8057
turnledger messages 099a8057 --at 12 -o jsonl""",
)
@run_argument
@at_option
@click.option(
    "--evaluation",
    metavar="ID",
    help="Conversation of this evaluation. Default: the latest not superseded.",
)
def messages(run: UUID, at: int | None, evaluation: str | None) -> None:
    """Print a run's conversation as a chat.

    Of a chat turn, the turns before it are printed too. The system text comes first; tool calls
    (→) are followed by their results (←, or ✗ for an error). A result that was amended for the
    model's next turn is followed by the amended text (~, in JSON `amended`). A message that
    asks for an output again since it could not be parsed is marked "output rejected" (in JSON
    `output_rejected`). Messages with a step number are grouped under it, with those that follow
    (in JSON `step_num` of each block). -o json and jsonl print the turns, with a synthetic
    first turn marked; the system text is in `state --path /history/system`.
    """
    with open_ledger() as ledger:
        records_until(ledger, run, at)
        known = one_conversation(ledger, run, evaluation, until=at)
    if evaluation is not None and evaluation not in known.evaluations:
        _say_evaluations(known, None)
        fail(
            f"Unknown evaluation {evaluation!r}: run {run} has no such one at that version.",
            ExitCode.NOT_FOUND,
            evaluations=list(known.evaluations),
        )
    out = printer()
    if out.form is not Format.TABLE:
        out.many(_turns(known))
        return
    Chat(out).show(known)
    _say_evaluations(known, evaluation)
    _say_repairs(known.history)


def _say_evaluations(known: OneConversation, chosen: str | None) -> None:
    """Name the run's other evaluations, at most the last MOST_NAMED."""
    names = known.evaluations
    current = [name for name in names if name not in known.superseded]
    shown = chosen if chosen is not None else next(reversed(current), None)
    others = [
        f"{name} (superseded)" if name in known.superseded else name
        for name in names
        if name != shown and name not in known.before
    ]
    if others:
        this = f"This is evaluation {shown}. " if shown is not None else ""
        before = len(others) - MOST_NAMED
        more = f"; and {before} before these" if before > 0 else ""
        named = ", ".join(others[-MOST_NAMED:])
        say(f"{this}Other evaluations (see --evaluation): {named}{more}.")


def _say_repairs(history: MessageHistory) -> None:
    counts = Counter(repair.kind for repair in history.repairs if repair.kind != "merged")
    if counts:
        listed = ", ".join(f"{count} x {kind}" for kind, count in counts.items())
        say(f"Repaired so that providers accept it: {listed}.")


class Chat:
    """Prints a conversation: wrapped and coloured on a terminal, unchanged elsewhere."""

    def __init__(self, out: Printer) -> None:
        self._out = out
        self._width = min(terminal_width(), WIDEST) if sys.stdout.isatty() else None
        self._begun = False
        self._step: int | None = None

    def show(self, known: OneConversation) -> None:
        history = known.said
        if history.system:
            self._speaker("system")
            self._text(history.system, "dim")
        turns = history.to_list()
        amended = known.history.to_list()
        for turn, answer, changed in zip_longest(turns, turns[1:], amended[1:]):
            # A user's turn may hold results only: they are printed with their calls.
            rest = [block for block in turn.blocks if not isinstance(block, ToolResultBlock)]
            if turn.synthetic:
                continue
            for step, blocks in groupby(rest, key=lambda block: known.steps.get(id(block))):
                self._begin_step(step)
                shown = list(blocks)
                self._speaker(turn.role, rejects=id(shown[0]) in known.rejections)
                self._turn(shown, _results(answer), _results(changed))
        if not self._begun:
            say("The conversation is empty.")

    def _begin_step(self, step: int | None) -> None:
        if step is not None and step != self._step:
            self._heading(f"step {step}", "bold")
        self._step = step

    def _turn(
        self,
        blocks: list[TextBlock | MediaBlock | ToolUseBlock],
        results: dict[str, ToolResultBlock],
        amended: dict[str, ToolResultBlock],
    ) -> None:
        for block in blocks:
            if isinstance(block, TextBlock):
                self._text(block.text)
            elif isinstance(block, MediaBlock):
                self._text(_media(block), "italic")
            else:
                self._call(block)
                self._result(results.get(block.call_id), amended.get(block.call_id))

    def _speaker(self, role: str, *, rejects: bool = False) -> None:
        self._heading(f"{role} (output rejected)" if rejects else role, ROLES[role])

    def _heading(self, text: str, style: str) -> None:
        if self._begun:
            self._out.line("")
        self._begun = True
        self._out.styled((text, style))

    def _text(self, text: str, style: str = "", mark: str = "", mark_style: str = "") -> None:
        """Print text under its role, with a mark before the first line."""
        margin = f"  {mark} " if mark else " " * INDENT
        for line in visible_lines(text).split("\n"):
            for piece in self._wrapped(line):
                self._out.styled((margin, mark_style), (piece, style))
                margin, mark_style = " " * INDENT, ""

    def _wrapped(self, line: str) -> Iterator[str]:
        """Wrap a line; each piece is indented like the line."""
        from rich.cells import cell_len
        from rich.text import Text

        room = (self._width or 0) - INDENT
        if self._width is None or cell_len(line) <= room:
            yield line
            return
        said = line.lstrip(" ")
        lead = min(len(line) - len(said), room // 2)
        for piece in Text(said).wrap(self._out.console, max(room - lead, 8), overflow="fold"):
            yield " " * lead + piece.plain.rstrip()

    def _call(self, call: ToolUseBlock) -> None:
        head = f"{visible(call.name)} [{visible(call.call_id)}]"
        short = _one_line(call.arguments)
        room = (self._width or WIDEST) - INDENT
        if short is not None and len(head) + 1 + len(short) <= room:
            self._text(f"{head} {short}", CALL, "→", CALL)
            return
        self._text(head, CALL, "→", CALL)
        for line in _argument_lines(call.arguments):
            self._text(f"  {line}", CALL)

    def _result(self, result: ToolResultBlock | None, amended: ToolResultBlock | None) -> None:
        if result is None:
            self._text("(no result)", "italic", "…", "italic")
        elif result.is_error:
            self._text(result.content, "red", "✗", "red")
        else:
            self._text(result.content, "", "←", CALL)
        if result is not None and amended is not None and amended.content != result.content:
            self._text(f"(amended) {amended.content}", "dim", "~", CALL)


def _turns(known: OneConversation) -> Iterator[Any]:
    """The turns as JSON data: what tools said, with amendments beside it, and steps."""
    for turn, changed in zip(known.said.to_list(), known.history.to_list(), strict=True):
        shown = msgspec.to_builtins(turn)
        for block, said, now in zip(shown["blocks"], turn.blocks, changed.blocks, strict=True):
            if isinstance(now, ToolResultBlock) and now != said:
                block["amended"] = now.content
            if known.steps.get(id(said)) is not None:
                block["step_num"] = known.steps[id(said)]
            if id(said) in known.rejections:
                block["output_rejected"] = True
        yield shown


def _results(turn: ChatTurn | None) -> dict[str, ToolResultBlock]:
    blocks = turn.blocks if turn is not None else ()
    return {block.call_id: block for block in blocks if isinstance(block, ToolResultBlock)}


def _media(media: MediaBlock) -> str:
    where = media.url if media.url is not None else f"blob {media.blob}"
    hint = f": {media.prompt_hint}" if media.prompt_hint else ""
    return f"[{media.mime or media.modality} {where}{hint}]"


def _one_line(arguments: str) -> str | None:
    """Arguments on one line; None if they are not JSON."""
    try:
        return safe_json(msgspec.json.format(arguments.encode(), indent=0)).decode()
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _argument_lines(arguments: str) -> Iterator[str]:
    """Arguments, one or more lines each; unchanged if they are not JSON."""
    try:
        named = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError):
        yield from (_one_line(arguments) or arguments).split("\n")
        return
    for name, raw in named.items():
        text = msgspec.json.decode(raw) if bytes(raw).startswith(b'"') else ""
        if "\n" in text:
            yield f"{visible(name)}:"
            yield from (f"  {line}" for line in text.removesuffix("\n").split("\n"))
        else:
            yield f"{visible(name)}: {_one_line(bytes(raw).decode())}"
