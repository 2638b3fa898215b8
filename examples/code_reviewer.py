"""A code reviewer whose session goes on from review to review: what it has seen, it remembers.

One session is made with the loop and used for every request, so that each run continues the one
before it: state accumulates, conversations start afresh. Run it: python examples/code_reviewer.py
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import turnledger.runtime as tl
from turnledger.ledger import Ledger


@dataclass(frozen=True)
class ReviewRequest:
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
    """A file that was reviewed; the session keeps one for each path."""

    path: str


def note(params: Note, *, context: tl.ToolContext) -> str:
    """Keep a remark for the author."""
    context.session[Note].append(params)
    return "Noted."


class CodeReviewLoop(tl.MainLoop[ReviewRequest, ReviewResult]):
    """Reviews one change after the other, each within five minutes of running time."""

    def __init__(
        self, *, adapter: tl.ProviderAdapter[ReviewResult], bus: tl.ControlBus, ledger: Ledger
    ) -> None:
        config = tl.MainLoopConfig(deadline=timedelta(minutes=5))
        super().__init__(adapter=adapter, bus=bus, config=config, ledger=ledger)
        self._session_kept = tl.Session(bus=bus, tags={"loop": "code-review"})
        tool = tl.Tool[Note, Any](name="note", description="Keep a remark.", handler=note)
        self._template = tl.PromptTemplate[ReviewResult](
            ns="reviews",
            key="code-review",
            sections=[
                tl.MarkdownSection[ReviewParams](
                    title="Change",
                    template="Review ${path} (seen before: ${seen}):\n\n${diff}",
                    key="change",
                    tools=[tool],
                )
            ],
        )

    def create_session(self) -> tl.Session:
        return self._session_kept

    def create_prompt(self, request: ReviewRequest) -> tl.Prompt[ReviewResult]:
        seen = self._session_kept[Reviewed].all()
        return tl.Prompt(self._template).bind(ReviewParams.from_request(request, seen))

    def review(self, request: ReviewRequest) -> ReviewResult | None:
        """Review a change, and remember that it was."""
        response, session = self.execute(request)
        session[Reviewed].append(Reviewed(request.path))
        return response.output


REPLIES = [
    tl.Reply(tool_calls=(tl.ToolCall("call_1", "note", '{"text": "Name it better."}'),)),
    tl.Reply(text='{"verdict": "approve", "remarks": ["Name it better."]}'),
]

if __name__ == "__main__":
    with Ledger.open("reviews.db") as ledger:
        loop = CodeReviewLoop(
            adapter=tl.ScriptedAdapter(REPLIES), bus=tl.InProcessEventBus(), ledger=ledger
        )
        for path in ("a.py", "b.py"):
            print(path, loop.review(ReviewRequest(path, "+ x = 1")))
        print("notes:", len(loop.create_session()[Note].all()))
