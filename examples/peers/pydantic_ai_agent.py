from dataclasses import dataclass

from pydantic_ai import Agent


@dataclass
class Triage:
    priority: str
    reply: str


agent = Agent("openai:gpt-5", name="support/triage", instructions="Triage the ticket.", output_type=Triage)


@agent.tool_plain
def credit(euros: int, reason: str = "") -> str:
    """Credit an amount to the customer."""
    return f"Credited {euros} EUR."


if __name__ == "__main__":
    result = agent.run_sync("My invoice is wrong.")
    print(result.run_id, result.output.priority, result.usage.total_tokens)
