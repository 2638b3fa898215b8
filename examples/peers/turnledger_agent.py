from dataclasses import dataclass

from turnledger import Agent, tool


@dataclass
class Triage:
    priority: str
    reply: str


@tool(on_interrupt="ask")
def credit(euros: int, reason: str = "") -> str:
    """Credit an amount to the customer."""
    return f"Credited {euros} EUR."


agent = Agent("support/triage", model="openai:gpt-5", instructions="Triage the ticket.", tools=[credit], output=Triage)
if __name__ == "__main__":
    result = agent.run("My invoice is wrong.", ledger="runs.db")
    print(result.run_id, result.output.priority, result.usage.total_tokens)
