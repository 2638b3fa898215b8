"""An agent that survives `kill -9`, in under 25 lines. Run it: python examples/minimal_agent.py"""

from turnledger import Agent, Reply, ToolCall, tool


@tool
def weather(city: str) -> str:
    """Look the weather up."""
    return f"It is sunny in {city}."


# In place of a model, so that it needs no key: model="openai:gpt-5" is all that changes.
REPLIES = [
    Reply(tool_calls=(ToolCall("call_1", "weather", '{"city": "Lisbon"}'),)),
    Reply("Sunny. Leave the umbrella at home."),
]
agent = Agent("demo/weather", model=REPLIES, instructions="Answer briefly.", tools=[weather])

if __name__ == "__main__":
    print(agent.run("How is the weather in Lisbon?", ledger="forecasts.db").text)
