"""`evaluate` from the outside: its parameters, its answer, what it tells and what it raises."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from tests.agent import calls, says
from tests.unit.runtime.evaluations import (
    ADD,
    Add,
    Heard,
    Scripted,
    Sum,
    adding,
    again,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import InvalidInputError, Ledger, MessageAppended
from turnledger.runtime import (
    Budget,
    BudgetTracker,
    ExecutionState,
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    PromptEvaluationError,
    PromptExecuted,
    PromptRendered,
    PromptResponse,
    PromptTemplate,
    Reply,
    Session,
    ToolContext,
    ToolInvoked,
    ToolResult,
    VisibilityExpansionRequired,
)
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.visibility import SectionVisibility
from turnledger.runtime.loop.adapter import ProviderAdapter

STORES = ["sqlite"]


@dataclass(frozen=True)
class First:
    word: str


@dataclass(frozen=True)
class Second:
    other: str


# --- parameters ----------------------------------------------------------------------


def test_evaluate_takes_what_the_seeds_give_it() -> None:
    """S4-1: the names and defaults of all parameters are the public ones."""
    found = inspect.signature(ProviderAdapter.evaluate).parameters
    kinds = {name: one.kind for name, one in found.items()}
    assert list(found)[:3] == ["self", "prompt", "params"]
    assert kinds["params"] is inspect.Parameter.VAR_POSITIONAL
    defaults = {name: one.default for name, one in list(found.items())[3:]}
    assert defaults == {
        "parse_output": True,
        "bus": None,
        "session": None,
        "execution_state": None,
        "deadline": None,
        "budget_tracker": None,
        "overrides_store": None,
        "overrides_tag": "latest",
        "resume": False,
        "resume_from": None,
    }


def test_params_go_to_the_rendering_in_their_order() -> None:
    """S4-1: and PromptRendered tells them in that order."""
    sections: list[Any] = [
        MarkdownSection[First](title="One", key="one", template="${word}"),
        MarkdownSection[Second](title="Two", key="two", template="${other}"),
    ]
    prompt: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="two", sections=sections))
    adapter, session = Scripted([says("ok")]), Session()
    heard = Heard().listen(session.bus)
    adapter.evaluate(prompt, First("a"), Second("b"), session=session)
    assert heard.of(PromptRendered)[0].inputs == ({"word": "a"}, {"other": "b"})
    assert adapter.requests[0].system.index("a") < adapter.requests[0].system.index("b")


def test_exactly_one_state_is_given() -> None:
    """X12: a session or an execution state, not both and not none."""
    adapter, session = Scripted([says("ok")]), Session()
    state = ExecutionState(session=session)
    both: dict[str, Any] = {"session": session, "execution_state": state}
    for wrong in ({}, both):
        with pytest.raises(InvalidInputError, match="exactly one"):
            adapter.evaluate(prompt_of(), **wrong)
    assert adapter.evaluate(prompt_of(), execution_state=state).text == "ok"
    assert messages(session)[-1].content == "ok"


def test_the_bus_is_the_sessions_unless_another_is_given() -> None:
    """X12: and then only that one hears of it."""
    session, other = Session(bus=InProcessEventBus()), InProcessEventBus()
    own, given = Heard().listen(session.bus), Heard().listen(other)
    Scripted([says("ok")]).evaluate(prompt_of(), session=session)
    assert own.names == ["PromptRendered", "PromptExecuted"]
    Scripted([says("ok")]).evaluate(prompt_of(), session=session, bus=other)
    assert (len(own.names), given.names) == (2, ["PromptRendered", "PromptExecuted"])


# --- what comes of it ------------------------------------------------------------------


def test_a_response_has_the_very_events_that_were_published() -> None:
    """S4-2: name, text, output, tool results and the provider's payload."""
    session = Session()
    heard = Heard().listen(session.bus)
    adapter = Scripted([ADD, says("4", payload={"id": "r2"})])
    response = adapter.evaluate(prompt_of(tool()), session=session)
    assert (response.prompt_name, response.text, response.output) == ("tests/sum", "4", None)
    assert response.provider_payload == {"id": "r2"}
    (published,) = heard.of(ToolInvoked)
    assert len(response.tool_results) == 1
    assert response.tool_results[0] is published
    assert (published.params, published.result.value) == (Add(2), 2)


def test_the_prompt_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4-4: however many turns there are."""
    rendered = 0
    render = Prompt.render

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal rendered
        rendered += 1
        return render(self, *args, **kwargs)

    monkeypatch.setattr(Prompt, "render", counted)
    Scripted([ADD, says("4")]).evaluate(prompt_of(tool()), session=Session())
    assert rendered == 1


def test_events_are_told_in_the_order_of_what_happens() -> None:
    """S4-5: rendered, asked, tool, asked, executed with the summed usage."""
    session = Session()
    heard = Heard().listen(session.bus)
    adapter = Scripted([ADD, says("4")], on_send=lambda sending: heard.said.append("request"))
    response = adapter.evaluate(prompt_of(tool()), session=session)
    expected = ["PromptRendered", "request", "ToolInvoked", "request", "PromptExecuted"]
    assert heard.names == expected
    rendered, executed = heard.of(PromptRendered)[0], heard.of(PromptExecuted)[0]
    assert (rendered.ns, rendered.key, rendered.adapter) == ("tests", "sum", "scripted")
    assert rendered.session_id == session.session_id
    assert "Add it up." in rendered.text
    assert executed.response is response


def test_usage_adds_up_over_the_requests() -> None:
    """X25: the last request's does not replace the total."""
    session = Session()
    heard = Heard().listen(session.bus)
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    adapter = Scripted([ADD, says("4")])
    adapter.evaluate(prompt_of(tool()), session=session, budget_tracker=tracker)
    usage = heard.of(PromptExecuted)[0].usage
    assert (usage.input_tokens, usage.output_tokens) == (20, 6)
    assert tracker.consumed.total_tokens == 26
    adapter.evaluate(prompt_of(tool()), session=session)
    assert heard.of(PromptExecuted)[1].usage == usage


def test_tools_are_offered_by_their_specs() -> None:
    """S4-6: each with its name, description and schema."""
    adapter = Scripted([says("ok")])
    adapter.evaluate(prompt_of(tool(), tool(name="more")), session=Session())
    specs = [spec["function"] for spec in adapter.requests[0].tools]
    assert [spec["name"] for spec in specs] == ["add", "more"]
    assert specs[0]["description"] == "Adds."
    assert specs[0]["parameters"]["properties"]["n"]["type"] == "integer"


@pytest.mark.parametrize("forced", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_forced_choice_reverts_after_the_first_call(forced: Any) -> None:
    """S4-9: to "auto", which is the default too."""
    adapter = Scripted([ADD, ADD, says("4")], tool_choice=forced)
    adapter.evaluate(prompt_of(tool()), session=Session())
    assert [one.tool_choice for one in adapter.requests] == [forced, "auto", "auto"]
    adapter = Scripted([ADD, says("4")])
    adapter.evaluate(prompt_of(tool()), session=Session())
    assert [one.tool_choice for one in adapter.requests] == ["auto", "auto"]


def test_the_assistants_turn_is_on_disk_before_its_tools_run(ledger: Ledger) -> None:
    """S4-8, S0-7: and the system's before the request, each tool's before the next one starts."""
    seen: list[list[str]] = []
    session = on(ledger)

    def note(*sending: Any) -> None:
        seen.append([said.role for said in messages(session)])

    def look(params: Add, *, context: ToolContext) -> str:
        note()
        return "ok"

    script = [calls(("a", "add"), ("b", "add")), says("done")]
    Scripted(script, on_send=note).evaluate(prompt_of(tool(look)), session=session)
    note()
    everything = ["system", "assistant", "tool", "tool", "assistant"]
    assert seen == [everything[:1], everything[:2], everything[:3], everything[:4], everything]


def test_the_loop_goes_on_until_a_reply_has_no_calls() -> None:
    """S4-10: each turn's request has everything that was said before."""
    script = [*(calls((f"c{n}", "add", f'{{"n": {n}}}'), text="More.") for n in range(5)), says("")]
    script[-1] = says("all")
    adapter, session = Scripted(script), Session()
    assert adapter.evaluate(prompt_of(tool()), session=session).text == "all"
    assert [len(one.turns) for one in adapter.requests] == [1, 3, 5, 7, 9, 11]
    assert session[Sum].all() == tuple(Sum(n) for n in range(5))


# --- what fails ------------------------------------------------------------------------


def test_a_request_that_fails_is_an_error_of_that_phase() -> None:
    """S4-3: message, prompt name, phase; the cause is the provider's error."""
    with pytest.raises(PromptEvaluationError, match="no route") as caught:
        Scripted([OSError("no route")]).evaluate(prompt_of(), session=Session())
    error = caught.value
    assert (error.prompt_name, error.phase) == ("tests/sum", "request")
    assert "no route" in error.message
    assert isinstance(error.__cause__, OSError)


def test_a_prompt_that_cannot_be_rendered_fails_before_anything_is_recorded() -> None:
    """S4-3: it is an error of the phase "request"."""
    session = Session()
    section = MarkdownSection[First](title="One", key="one", template="${word}")
    prompt: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="one", sections=[section]))
    with pytest.raises(PromptEvaluationError) as caught:
        Scripted([says("ok")]).evaluate(prompt, session=session)
    assert caught.value.phase == "request"
    assert messages(session) == []


def test_an_expansion_passes_as_it_is_and_supersedes_the_evaluation() -> None:
    """X27, X20: its call waits for nobody, and a resume finds no conversation."""
    session = Session()
    wanted = {"task": SectionVisibility.FULL}

    def open_it(params: Add, *, context: ToolContext) -> ToolResult[int]:
        context.session[Sum].append(Sum(9))
        raise VisibilityExpansionRequired(wanted, reason="look")

    with pytest.raises(VisibilityExpansionRequired) as caught:
        Scripted([ADD]).evaluate(prompt_of(tool(open_it)), session=session)
    assert caught.value.requested_overrides == wanted
    assert session.state.tools.pending() == ()
    assert session[Sum].all() == ()
    answer = Scripted([says("fresh")]).evaluate(prompt_of(tool(adding)), session=session)
    assert answer.text == "fresh"
    session.commit()
    assert again(session).journal.progress.expansions == 1


def test_a_tool_cannot_evaluate_in_the_session_that_it_runs_in() -> None:
    """It is told to take a session of its own, and with one it works."""
    inner = Scripted([says("inner")])

    def nested(params: Add, *, context: ToolContext) -> str | None:
        session = context.session if params.n == 2 else context.session.clone()
        return inner.evaluate(prompt_of(key="inner"), session=session).text

    session = Session()
    script = [ADD, calls(("c2", "add", '{"n": 3}')), says("done")]
    response = Scripted(script).evaluate(prompt_of(tool(nested)), session=session)
    assert response.text == "done"
    first, second = (said.content for said in messages(session) if said.role == "tool")
    assert "session of its own" in first
    assert second == "inner"


def test_an_adapter_may_override_evaluate_alone() -> None:
    """S4-1: a test double or a wrapper needs no encode, send and decode, also in a MainLoop."""

    class Double(ProviderAdapter[str]):
        def evaluate(self, prompt: Any, *params: Any, **options: Any) -> PromptResponse[str]:
            return PromptResponse(prompt.label, "42", None, ())

    class Asking(MainLoop[Add, str]):
        def create_prompt(self, request: Add) -> Prompt[str]:
            return prompt_of()

        def create_session(self) -> Session:
            return Session(bus=self._bus)

    response, _ = Asking(adapter=Double(), bus=InProcessEventBus()).execute(Add(1))
    assert response.text == "42"


def test_an_adapter_without_encode_send_and_decode_is_told_so() -> None:
    """S4-1: the base evaluate names what is missing, before anything is recorded."""

    class Half(ProviderAdapter[str]):
        def encode(self, request: Any) -> Any:
            return request

    session = Session()
    with pytest.raises(InvalidInputError, match="Invalid adapter Half: it has no send, decode"):
        Half().evaluate(prompt_of(), session=session)
    with pytest.raises(InvalidInputError, match="it has no encode, send, decode"):
        ProviderAdapter[str]().encode(None)  # type: ignore[arg-type]
    assert events(session, MessageAppended) == []


def test_the_payload_of_an_adapter_that_names_none_is_the_answer_as_data() -> None:
    """S4-2: a mapping that `send` returned is the payload, with the adapter's own decode."""

    class Plain(ProviderAdapter[str]):
        def encode(self, request: Any) -> Any:
            return request

        def send(self, payload: Any, sending: Any) -> Any:
            return {"id": "r1", "text": "4"}

        def decode(self, raw: Any) -> Reply:
            return Reply(text=raw["text"])

    response = Plain().evaluate(prompt_of(), session=Session())
    assert (response.text, response.provider_payload) == ("4", {"id": "r1", "text": "4"})
