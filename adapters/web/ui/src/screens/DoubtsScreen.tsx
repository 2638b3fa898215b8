/** Calls that have not ended, to be decided: those of waiting runs, or of runs with another status. */
import "../doubts/doubts.css";
import { computed } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { address, step } from "../core/address";
import { count, number } from "../core/format";
import { DoubtsModel, STATUSES, type Doubt, type Status } from "../doubts/model";
import { question } from "../parts/doubt/call";
import { DoubtCard } from "../parts/doubt/DoubtCard";
import { Link } from "../parts/Link";
import { ProblemNote } from "../parts/Problem";
import { Text } from "../parts/Text";

// Cards that are there at once: a run may have very many open calls.
const CARDS = 25;

const EMPTY: Record<Status, string> = {
  waiting: "No run waits for a decision.",
  running: "No running run has a call that has not ended.",
  failed: "No failed run has a call that has not ended.",
  parked: "No parked run has a call that has not ended.",
};

export function DoubtsScreen() {
  const status = useMemo(() => computed(() => STATUSES.find((one) => one === address.value.q) ?? "waiting"), []);
  const model = useMemo(() => new DoubtsModel(status), []);
  useEffect(() => () => model.close(), []);
  const { value, problem, isStale } = model.page.loaded.value;
  return (
    <main class="screen doubts">
      <header class="tools-line">
        <h1>Doubts</h1>
        <Statuses chosen={status.value} choose={(one) => choose(model, one)} />
        <span class="space" />
        <span class={`connection connection-${model.connection.value}`} role="status">
          {model.connection.value === "lost" ? "connection lost, trying again" : model.connection.value}
        </span>
      </header>
      <div class="cards" tabIndex={0} role="region" aria-label="Calls that have not ended">
        {problem && <ProblemNote problem={problem} again={() => model.page.again()} />}
        {!value && isStale && <Skeletons />}
        {value && Object.entries(value.damaged).map(([run, reason]) => <Damaged key={run} run={run} reason={reason} />)}
        {value && value.doubts.length === 0 && !value.next && <p>{EMPTY[status.value]}</p>}
        {value && <Cards key={`${status.value} ${model.before.value.at(-1)}`} doubts={value.doubts} />}
        {value && value.left > 0 && <Left doubts={value.doubts} left={value.left} />}
        <Pages model={model} />
      </div>
    </main>
  );
}

function choose(model: DoubtsModel, status: Status): void {
  model.before.value = [];
  step({ q: status === "waiting" ? "" : status });
}

function Statuses({ chosen, choose: pick }: { chosen: Status; choose: (status: Status) => void }) {
  return (
    <span role="group" aria-label="Of runs that are">
      Of runs that are{" "}
      {STATUSES.map((status) => (
        <button key={status} aria-pressed={status === chosen} onClick={() => pick(status)}>
          {status}
        </button>
      ))}
    </span>
  );
}

function Cards({ doubts }: { doubts: Doubt[] }) {
  const [from, setFrom] = useState(0);
  const start = Math.min(from, Math.max(0, doubts.length - 1));
  const shown = doubts.slice(start, start + CARDS);
  const after = doubts.length - start - shown.length;
  return (
    <>
      {start > 0 && <button onClick={() => setFrom(Math.max(0, start - CARDS))}>{count(start, "call")} before these</button>}
      <ul>
        {shown.map((doubt) => (
          <li key={`${doubt.run} ${doubt.call.number}`}>
            <Shown doubt={doubt} />
          </li>
        ))}
      </ul>
      {after > 0 && <button onClick={() => setFrom(start + CARDS)}>{count(after, "more call")}</button>}
    </>
  );
}

function Shown({ doubt }: { doubt: Doubt }) {
  const { run, call } = doubt;
  const isPending = question(call) === "none";
  return (
    <>
      <p class="of-run">
        <span>
          run{" "}
          <Link to={{ screen: "run", run, at: call.at }} title="Open the run here">
            <code>{run}</code>
          </Link>
        </span>
        <span>event {number(call.at)}</span>
        {isPending && (
          <span class="pending">
            <Text value={call.name} /> <Text value={call.call_id} class="mono" /> is not started: it runs when the run goes on
          </span>
        )}
      </p>
      {!isPending && <DoubtCard run={run} call={call} />}
    </>
  );
}

function Left({ doubts, left }: { doubts: Doubt[]; left: number }) {
  const run = doubts[0]?.run ?? "";
  return (
    <p class="damaged-run" role="alert">
      {count(left, "more open call")} of <Link to={{ screen: "run", run }}>this run</Link> did not fit here: turnledger pending {run}
    </p>
  );
}

function Damaged({ run, reason }: { run: string; reason: string }) {
  return (
    <p class="damaged-run" role="alert">
      Run <code>{run}</code> can't be read: <Text value={reason} lines />
    </p>
  );
}

function Pages({ model }: { model: DoubtsModel }) {
  const next = model.page.loaded.value.value?.next;
  const isLater = model.before.value.length > 0;
  if (!next && !isLater) return null;
  return (
    <p class="pages">
      {isLater && <button onClick={() => model.previous()}>Newer runs</button>}
      {next && <button onClick={() => model.next()}>Older runs</button>}
    </p>
  );
}

function Skeletons() {
  return (
    <div role="status" aria-label="Doubts are loading">
      {[0, 1, 2].map((place) => (
        <p key={place}>
          <span class="skeleton" />
        </p>
      ))}
    </div>
  );
}
