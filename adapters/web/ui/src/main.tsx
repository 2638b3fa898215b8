/** The page: which screen, and what is above all of them. */
import "./style.css";
import { signal } from "@preact/signals";
import { render } from "preact";
import { useAction, useWaiting } from "./core/actions";
import { address, jump } from "./core/address";
import { beginSession, Problem } from "./core/api";
import { Link } from "./parts/Link";
import { ProblemNote } from "./parts/Problem";
import { Overlays } from "./overlays/Overlays";
import { CompareScreen } from "./screens/CompareScreen";
import { DoubtsScreen } from "./screens/DoubtsScreen";
import { EventScreen } from "./screens/EventScreen";
import { RunScreen } from "./screens/RunScreen";
import { RunsScreen } from "./screens/RunsScreen";

const began = signal<"no" | "yes" | Problem>("no");

function Page() {
  useAction("runs", () => jump({ screen: "runs", run: "", at: null, pin: "", q: "", tab: "changed" }));
  useAction("doubts", () => jump({ screen: "doubts", run: "", at: null, pin: "", q: "", tab: "changed" }));
  useWaiting(began.value === "no");
  if (began.value === "no") return null;
  if (began.value instanceof Problem) return <ProblemNote problem={began.value} />;
  return (
    <>
      <nav class="top" aria-label="Page">
        <Link to={{ screen: "runs" }} class="name">
          Turnledger
        </Link>
        <Link to={{ screen: "runs" }}>Runs</Link>
        <Link to={{ screen: "doubts" }}>Doubts</Link>
        <span class="space" />
        <Overlays />
      </nav>
      <Shown />
    </>
  );
}

function Shown() {
  const { screen, run, other } = address.value;
  if (screen === "runs") return <RunsScreen />;
  if (screen === "run") return <RunScreen key={run} run={run} />;
  if (screen === "compare") return <CompareScreen key={`${run} ${other}`} first={run} second={other} />;
  if (screen === "doubts") return <DoubtsScreen />;
  if (screen === "event") return <EventScreen />;
  return <ProblemNote problem={new Problem(404, "no-page", "There is no such page", location.pathname)} />;
}

render(<Page />, document.getElementById("page")!);
beginSession().then(
  () => {
    began.value = "yes";
  },
  (problem: Problem) => {
    began.value = problem;
  },
);
