"""A code reviewer: it gets to know the workspace once, and reviews one change after the other.

One session is made with the loop and used for every request, so that each run continues the one
before it: state accumulates, conversations start afresh. Before the first review a model writes a
digest of the workspace, in a run of its own; all later prompts show it. A run that was
interrupted is recovered first, wherever it was.

    python examples/code_reviewer.py
    python examples/code_reviewer.py --provider openai --model gpt-4.1 my.diff

Without a provider the model is a script, which reviews a change of this repository.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import turnledger.adapters as providers
import turnledger.runtime as tl
from turnledger.ledger import Ledger
from turnledger.runtime.workspace import (
    HostMount,
    PlanningToolsSection,
    VfsToolsSection,
    WorkspaceDigest,
    WorkspaceDigestSection,
)

HERE = Path(__file__).resolve().parent
# Tells how the repository is built and tested: worth knowing for every review.
GUIDE = "CONTRIBUTING.md"


@dataclass(frozen=True)
class ReviewRequest:
    """A change of one file."""

    path: str
    diff: str


@dataclass(frozen=True)
class ReviewResult:
    """What a review comes to."""

    verdict: str
    remarks: list[str]


@dataclass(frozen=True)
class ReviewParams:
    path: str
    diff: str
    seen: str

    @classmethod
    def from_request(cls, request: ReviewRequest, seen: tuple[Reviewed, ...]) -> ReviewParams:
        before = ", ".join(one.path for one in seen) or "nothing yet"
        return cls(request.path, request.diff, before)


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Reviewed:
    """A file that was reviewed; the session keeps one for each review."""

    path: str


def note(params: Note, *, context: tl.ToolContext) -> str:
    """Keep a remark for the author."""
    context.session[Note].append(params)
    return "Noted."


class CodeReviewLoop(tl.MainLoop[ReviewRequest, ReviewResult]):
    """Reviews one change after the other, each within five minutes of running time."""

    def __init__(
        self,
        *,
        adapter: tl.ProviderAdapter[ReviewResult],
        bus: tl.ControlBus,
        ledger: Ledger,
        root: Path,
        workspace: Path,
    ) -> None:
        """Make a reviewer of the repository at `root`, which works in another directory."""
        super().__init__(
            adapter=adapter,
            bus=bus,
            config=tl.MainLoopConfig(deadline=timedelta(minutes=5)),
            ledger=ledger,
            resources={"workspace": tl.SnapshotableFilesystem(workspace)},
        )
        self._root = root
        self._session_kept = tl.Session(bus=bus, tags={"loop": "code-review"})
        self._note = tl.Tool[Note, Any](name="note", description="Keep a remark.", handler=note)

    def create_session(self) -> tl.Session:
        return self._session_kept

    def needs_optimization(self, session: tl.Session) -> bool:
        return session[WorkspaceDigest].latest() is None

    def create_prompt(self, request: ReviewRequest) -> tl.Prompt[ReviewResult]:
        template = tl.PromptTemplate[ReviewResult](
            ns="reviews",
            key="code-review",
            sections=[
                tl.MarkdownSection[ReviewParams](
                    title="Change",
                    template="Review ${path} (seen before: ${seen}):\n\n${diff}",
                    key="change",
                    tools=[self._note],
                ),
                PlanningToolsSection(),
                VfsToolsSection(
                    mounts=[HostMount(self._root / one, one) for one in (GUIDE, request.path)],
                    allowed_host_roots=[self._root],
                ),
                WorkspaceDigestSection(),
            ],
        )
        seen = self._session_kept[Reviewed].all()
        return tl.Prompt(template).bind(ReviewParams.from_request(request, seen))

    def review(self, request: ReviewRequest) -> ReviewResult | None:
        """Review a change, and remember that it was."""
        response, session = self.execute(request)
        session[Reviewed].append(Reviewed(request.path))
        return response.output


def changes_in(diff: str) -> Iterator[ReviewRequest]:
    """One request for each file of a diff as git prints it."""
    for part in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE):
        found = re.search(r"^\+\+\+ b/(.+)$", part, re.MULTILINE)
        if found is not None:
            yield ReviewRequest(found[1], part)


# --- the scripted model ------------------------------------------------------------------


def calls(*asked: tuple[str, str]) -> tl.Reply:
    """A reply with calls: a tool, whose name is the call's id too, and its arguments."""
    return tl.Reply(tool_calls=tuple(tl.ToolCall(name, name, given) for name, given in asked))


DIGEST = """
Python, in four packages that import only from those to their left. `make check` runs ruff, mypy,
import-linter and all tests. A test says in one sentence what it protects (CONTRIBUTING.md).
"""
REMARKS = {
    "ledger/runs/append.py": "`type(now) is not int` refuses True as well: say so in the message.",
    "tests/fuzz/callables/test_public_callables.py": "The case of `continuation` is gone: why?",
}


def scripted(request: Any) -> tl.Reply:
    """Reply as a model would; what it says depends on what it is asked only."""
    if "## Goal" in request.system:
        explore = [
            calls(("ls", "{}"), ("read_file", '{"file_path": "/CONTRIBUTING.md"}')),
            tl.Reply(DIGEST),
        ]
        return explore[request.turn - 1]
    found = re.search(r"^Review (\S+) ", request.system, re.MULTILINE)
    path = found[1] if found is not None else ""
    remark = REMARKS.get(path, "Name it better.")
    step = '{"objective": "review", "steps": [{"title": "read the file around the change"}]}'
    review = [
        calls(("planning_setup_plan", step)),
        calls(("read_file", f'{{"file_path": "/{path}", "limit": 50}}')),
        calls(
            ("note", f'{{"text": "{remark}"}}'),
            ("planning_mark_step", '{"step_id": "S001", "status": "done"}'),
        ),
        tl.Reply(f'{{"verdict": "approve", "remarks": ["{remark}"]}}'),
    ]
    return review[request.turn - 1]


# --- the program -------------------------------------------------------------------------


ADAPTERS = {
    "anthropic": "AnthropicAdapter",
    "gemini": "GeminiAdapter",
    "litellm": "LiteLLMAdapter",
    "openai": "OpenAIAdapter",
}
_workspaces: list[TemporaryDirectory[str]] = []


def loop(ledger: Ledger, provider: str = "", model: str = "") -> CodeReviewLoop:
    """Make the reviewer on a ledger, in an empty directory: what was in another is on record."""
    adapter: Any = tl.ScriptedAdapter(scripted)
    if provider:
        adapter = getattr(providers, ADAPTERS[provider])(model=model)
    _workspaces.append(TemporaryDirectory())
    return CodeReviewLoop(
        adapter=adapter,
        bus=tl.InProcessEventBus(),
        ledger=ledger,
        root=HERE.parent,
        workspace=Path(_workspaces[-1].name),
    )


def main() -> None:
    parser = ArgumentParser(description="Review a change of this repository.")
    parser.add_argument("diff", nargs="?", type=Path, default=HERE / "change.diff")
    parser.add_argument("--provider", choices=ADAPTERS, help="by default the model is a script")
    parser.add_argument("--model", default="", help="the provider's name of a model")
    asked = parser.parse_args()
    with Ledger.open("reviews.db") as ledger:
        reviewer = loop(ledger, asked.provider or "", asked.model)
        for run in reviewer.list_recoverable():
            print(f"recovered {run.run_id}: {reviewer.recover(run)[0].output}")
        for change in changes_in(asked.diff.read_text()):
            print(f"{change.path}: {reviewer.review(change)}")
        print(f"notes: {len(reviewer.create_session()[Note].all())}")


if __name__ == "__main__":
    main()
