/** What the event changed, with before and after. */
import { useState } from "preact/hooks";
import { count, number } from "../../core/format";
import type { Cut } from "../../parts/json/values";
import { ProblemNote } from "../../parts/Problem";
import { useRun, type Changes } from "../model";
import { Change } from "./Change";
import { Skeletons } from "../../parts/Skeletons";

/** Changes that are shown at once. */
const SHOWN = 30;

export function Changed() {
  const model = useRun();
  const { value, problem, isStale } = model.changes.loaded.value;
  if (problem) return <ProblemNote problem={problem} again={() => model.changes.again()} />;
  if (!value) return <Skeletons />;
  return (
    <div class={isStale ? "stale" : ""} aria-busy={isStale}>
      <Listed key={value.version} changes={value} />
    </div>
  );
}

function Listed({ changes }: { changes: Changes & { cut?: Cut[] } }) {
  const [first, setFirst] = useState(0);
  const all = changes.changes;
  const cut = changes.cut?.find((one) => one.pointer === "/changes");
  const total = cut?.total ?? all.length;
  if (total === 0) {
    return <p class="said">Event {number(changes.version)} changed nothing in the state.</p>;
  }
  const last = Math.min(first + SHOWN, all.length);
  return (
    <>
      <p class="said">
        Event {number(changes.version)} changed {count(total, "value")}
        {changes.complete === false && " and more: only the first are listed"}.
        {(changes.complete === false || cut) && ` Here are ${number(all.length)}; the state has all of them.`}
      </p>
      {first > 0 && <button onClick={() => setFirst(first - SHOWN)}>{number(first)} before</button>}
      <ol class="changes-list" aria-label="Changes">
        {all.slice(first, last).map((change, place) => (
          <Change key={first + place} change={change} place={first + place} version={changes.version} cut={changes.cut} />
        ))}
      </ol>
      {last < all.length && <button onClick={() => setFirst(last)}>{number(all.length - last)} more</button>}
    </>
  );
}
