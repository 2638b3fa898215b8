"""Agents that are killed wherever they can be: one loop for each kind, scripted, with real effects.

An effect is a line in a file, on disk before the tool goes on: what was paid stays paid. `point`
is called at every moment where a process may die; whoever runs the agent decides whether it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.agent import calls, says, task
from turnledger.ledger import Ledger
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    MessageBuilder,
    Prompt,
    PromptTemplate,
    ProviderAdapter,
    RecoveryConfig,
    Reply,
    ScriptedAdapter,
    SectionVisibility,
    Session,
    SnapshotableFilesystem,
    Tool,
    ToolContext,
    ToolResult,
)
from turnledger.runtime.recovery.approvals import approve, deny, edit
from turnledger.runtime.workspace import (
    HostMount,
    VfsToolsSection,
    WorkspaceDigest,
    WorkspaceDigestSection,
    WorkspaceSection,
)


def no_point(name: str) -> None:
    """Nobody wants to die here."""


@dataclass(frozen=True)
class Order:
    """What an agent is asked to do."""

    customer: str = "acme"


@dataclass(frozen=True)
class Pay:
    amount: int


@dataclass(frozen=True)
class Paid:
    amount: int


@dataclass(frozen=True)
class Receipt:
    """A structured answer."""

    paid: int
    note: str


@dataclass(frozen=True)
class Params:
    customer: str


class Agent(MainLoop[Order, Any]):
    """A loop of one kind, whose effects go to a file."""

    def __init__(
        self,
        kind: str,
        effects: Path,
        ledger: Ledger | None,
        *,
        on_interrupt: Any = "retry",
        point: Callable[[str], None] = no_point,
        recovery: RecoveryConfig | None = None,
        adapter: ProviderAdapter[Any] | None = None,
        **options: Any,
    ) -> None:
        self.kind = kind
        self._effects = effects
        self._point = point
        self._on_interrupt = on_interrupt
        self.session: Session | None = None
        # The amounts that it was asked about, whether they need approval.
        self.asked: list[int] = []
        bus = InProcessEventBus()
        if adapter is None:
            adapter = ScriptedAdapter(self._reply, parallel_tools=parallel_tools(kind))
        if recovery is None:
            recovery = RecoveryConfig(max_attempts=50)
        super().__init__(adapter=adapter, bus=bus, ledger=ledger, recovery=recovery, **options)

    # --- what it says ---

    def _reply(self, request: Any) -> Reply:
        self._point(f"in model call {request.turn}")
        reply = reply_of(self.kind, request.turn, request.system)
        self._point(f"after model call {request.turn}")
        return reply

    def create_session(self) -> Session:
        if self.kind == "reused" and self.session is not None:
            return self.session
        session = Session(bus=self._bus, tags={"kind": self.kind})
        session[Paid].seed([])
        self.session = session
        return session

    def create_prompt(self, request: Order) -> Prompt[Any]:
        tools = [
            Tool[Pay, Any](
                name=name,
                description="Pay an amount.",
                handler=handler,
                on_interrupt=self._on_interrupt,
                needs_approval=self._is_large if self.kind == "approvals" else False,
            )
            for name, handler in (("pay", self._pay), ("refuse", self._refuse))
        ]
        prices = MarkdownSection[Params](
            title="Prices",
            template="The whole price list of ${customer}.",
            summary="A price list.",
            visibility=SectionVisibility.SUMMARY,
            key="prices",
        )
        prompt = task(
            Params(request.customer),
            "Pay what ${customer} owes.",
            tools,
            name=f"crash/{self.kind}",
            output=Receipt if self.kind == "structured" else None,
            more=[prices] if self.kind == "expansion" else [],
        )
        if self.kind != "chat":
            return prompt
        return prompt.with_messages(MessageBuilder().add_text(f"For {request.customer}, please."))

    def _is_large(self, params: Pay) -> bool:
        self.asked.append(params.amount)
        self._point(f"asked about {params.amount}")
        return params.amount > 1

    # --- what it does ---

    def _pay(self, params: Pay, *, context: ToolContext) -> ToolResult[Any]:
        self._point(f"in tool {context.call_id}, before")
        line = f"{_effect(context)} {params.amount}\n".encode()
        handle = os.open(self._effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line)
        os.fsync(handle)
        os.close(handle)
        self._point(f"in tool {context.call_id}, after")
        if self.kind not in ("parallel", "approvals"):
            context.session[Paid].append(Paid(params.amount))
        return ToolResult(f"Paid {params.amount}.", value={"amount": params.amount})

    def _refuse(self, params: Pay, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Paid].append(Paid(-1))
        self._point(f"in tool {context.call_id}, before")
        raise RuntimeError("the bank is closed")

    def effects(self) -> list[str]:
        """The calls whose effect happened, in order."""
        if not self._effects.exists():
            return []
        return [line.split()[0] for line in self._effects.read_text().splitlines()]


class Clerk(Agent):
    """An agent whose effects are the files of a workspace: a new, empty folder for each process.

    If its kind is "optimized", the digest of the workspace is written first, in a run of its own.
    """

    def __init__(
        self, folder: Path, ledger: Ledger | None, *, kind: str = "workspace", **options: Any
    ) -> None:
        self.host, self._folder = folder / "host", folder
        self.host.mkdir(exist_ok=True)
        (self.host / "prices.txt").write_text("tea 1\n" * 1000)
        workspace = folder / f"workspace-{len(self.workspaces):03}"
        workspace.mkdir()
        resources = {"workspace": SnapshotableFilesystem(workspace)}
        super().__init__(kind, folder / "effects", ledger, resources=resources, **options)

    @property
    def workspaces(self) -> list[Path]:
        """The folders of all processes so far."""
        return sorted(self._folder.glob("workspace-*"))

    def effects(self) -> list[str]:
        """Paths and blob names of all files that the last process left which had any."""
        manifests = [SnapshotableFilesystem(one).snapshot().files for one in self.workspaces]
        last = next(filter(None, reversed(manifests)), {})
        return [f"{path} {name}" for path, name in last.items()]

    def needs_optimization(self, session: Session) -> bool:
        return self.kind == "optimized" and session[WorkspaceDigest].latest() is None

    def _section(self) -> WorkspaceSection:
        return VfsToolsSection(mounts=[HostMount(self.host)], allowed_host_roots=[self.host.parent])

    def create_prompt(self, request: Order) -> Prompt[Any]:
        section = self._section()
        template: PromptTemplate[Any] = PromptTemplate(
            ns="crash",
            key=self.kind,
            sections=[section, *([WorkspaceDigestSection()] if self.kind == "optimized" else [])],
        )
        return Prompt(template)


def _effect(context: ToolContext) -> str:
    """A call, and for whom if that is not the usual customer."""
    assert context.prompt is not None
    (params,) = context.prompt.params
    return context.call_id if params.customer == "acme" else f"{context.call_id}@{params.customer}"


def pays(*asked: tuple[str, str, int]) -> Reply:
    """A reply with calls: id, tool and amount."""
    named = ((i, name, f'{{"amount": {amount}}}') for i, name, amount in asked)
    return calls(*named, text="One moment.")


SCRIPTS: dict[str, list[Reply]] = {
    "none": [says("Nothing to pay.")],
    "one": [pays(("a1", "pay", 1)), says("Paid 1.")],
    "sequential": [
        pays(("a1", "pay", 1)),
        pays(("a2", "pay", 2)),
        pays(("a3", "pay", 3)),
        says("Paid 6."),
    ],
    "parallel": [
        pays(("a1", "pay", 1), ("a2", "pay", 2), ("a3", "pay", 3)),
        says("Paid 6."),
    ],
    "failing": [pays(("a1", "refuse", 1), ("a2", "pay", 2)), says("Paid 2.")],
    "expansion": [calls(("o1", "open_sections", '{"section_keys": ["prices"], "reason": "look"}'))],
    "structured": [pays(("a1", "pay", 1)), says('{"paid": 1, "note": "done"}')],
    "reused": [pays(("a1", "pay", 1)), says("Paid 1.")],
}
KINDS = tuple(SCRIPTS)
# Three runs, each of which continues the one before.
SCRIPTS["chat"] = SCRIPTS["reused"]
_EDIT = (
    '{"file_path": "/host/prices.txt", "replace_all": true, "old_string": "tea", '
    '"new_string": "mate"}'
)
SCRIPTS["workspace"] = [
    calls(("w1", "write_file", '{"file_path": "/a/b.txt", "content": "one two three"}')),
    calls(("w2", "write_file", '{"file_path": "/a/b.txt", "content": "again"}')),
    calls(
        ("w3", "edit_file", _EDIT),
        ("w4", "rm", '{"path": "/a/b.txt"}'),
        ("w5", "write_file", '{"file_path": "/c.txt", "content": "done"}'),
    ),
    says("Done."),
]
SCRIPTS["optimized"] = SCRIPTS["workspace"]
SCRIPTS["approvals"] = [
    pays(("a1", "pay", 1), ("a2", "pay", 2), ("a3", "pay", 3), ("a4", "pay", 4)),
    says("Paid what I may."),
]
_EXPLORING = [
    calls(("x1", "write_file", '{"file_path": "/seen", "content": "x"}')),
    calls(("x2", "edit_file", '{"file_path": "/seen", "old_string": "x", "new_string": "y"}')),
    says("Prices, a thousand of them."),
]


def reply_of(kind: str, turn: int, asked: str) -> Reply:
    """What the model says: it depends on nothing but what it is asked."""
    replies = _EXPLORING if "## Goal" in asked else SCRIPTS[kind]
    if kind == "expansion" and "The whole price list" in asked:
        replies = [pays(("e1", "pay", 3)), says("Paid 3.")]
    return replies[turn - 1]


def decide_approvals(ledger: Ledger, run: UUID, calls: Sequence[str]) -> None:
    """What a person decides about the payments of the kind "approvals": 2 yes, 3 no, 4 is 5."""
    for call in calls:
        if call == "a2":
            approve(ledger, run, call, by="ann")
        elif call == "a3":
            deny(ledger, run, call, "Not that one.", by="ann")
        else:
            edit(ledger, run, call, {"amount": 5}, by="ann")


def parallel_tools(kind: str) -> int:
    return 3 if kind == "parallel" else 1
