"""An agent that survives `kill -9`, in under 40 lines. Run it: python examples/minimal_agent.py"""

from dataclasses import dataclass

import turnledger.runtime as tl
from turnledger.ledger import Ledger


@dataclass(frozen=True)
class Question:
    city: str


def weather(params: Question, *, context: tl.ToolContext) -> str:
    return f"It is sunny in {params.city}."


class Forecaster(tl.MainLoop[Question, str]):
    def create_session(self) -> tl.Session:
        return tl.Session(bus=self._bus)

    def create_prompt(self, request: Question) -> tl.Prompt[str]:
        tool = tl.Tool(name="weather", description="The weather today.", handler=weather)
        task = tl.MarkdownSection[Question](
            title="Task", template="How is the weather in ${city}?", key="task", tools=[tool]
        )
        return tl.Prompt(tl.PromptTemplate(ns="demo", key="city", sections=[task])).bind(request)


REPLIES = [
    tl.Reply(tool_calls=(tl.ToolCall("call_1", "weather", '{"city": "Lisbon"}'),)),
    tl.Reply(text="Sunny. Leave the umbrella at home."),
]

if __name__ == "__main__":
    with Ledger.open("forecasts.db") as ledger:
        model, bus = tl.ScriptedAdapter[str](REPLIES), tl.InProcessEventBus()
        loop = Forecaster(adapter=model, bus=bus, ledger=ledger)
        print(loop.execute(Question("Lisbon"))[0].text)
