/** A ledger without runs: the four lines that fill it. */
const LINES = `# hello.py: run it with \`python hello.py\` in the folder of the ledger
from turnledger import Agent, Reply
agent = Agent("hello", model=[Reply("Hello.")], instructions="Say hello.")
print(agent.run("Hi.", ledger="runs.db").text)`;

export function EmptyLedger() {
  return (
    <div class="empty">
      <h2>There are no runs yet</h2>
      <p>These four lines make one, without a key and without a network:</p>
      <pre>{LINES}</pre>
      <p>The ledger's file is the one that `turnledger serve` was given, runs.db if none was. New runs appear here by themselves.</p>
    </div>
  );
}
