/** What went wrong, and what to do. */
import type { Problem } from "../core/api";
import { Text } from "./Text";

const ADVICE: Record<string, string> = {
  unreachable: "Start it again, then try again.",
  unauthorized: "Start `turnledger serve` again and open the link that it prints: it is good for a minute, once.",
  forbidden: "Open the page by the link of `turnledger serve`, which may do everything.",
  "store-busy": "Another process writes; try again in a moment.",
  "store-unavailable": "Look at the server's log: the ledger's file or database can't be reached.",
  "run-not-found": "Check the address; the list of runs has those of this ledger.",
  "event-not-found": "Check the address; the run has no such event.",
};

export function ProblemNote({ problem, again }: { problem: Problem; again?: () => void }) {
  const advice = ADVICE[problem.type];
  return (
    <div class="problem" role="alert">
      <strong>{problem.title}</strong>
      <p>
        <Text value={problem.message} lines />
      </p>
      {advice && <p>{advice}</p>}
      {again && <button onClick={again}>Try again</button>}
    </div>
  );
}
