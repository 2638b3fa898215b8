/** The list of runs, live. */
import "../runs/runs.css";
import { computed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { address, jump, step } from "../core/address";
import { useAction, useWaiting } from "../core/actions";
import { count } from "../core/format";
import { ProblemNote } from "../parts/Problem";
import { Rows } from "../parts/Rows";
import { Text } from "../parts/Text";
import { EmptyLedger } from "../runs/EmptyLedger";
import { Facets } from "../runs/Facets";
import { parseFilter } from "../runs/filter";
import { RunsModel } from "../runs/model";
import { RunRow } from "../runs/RunRow";

const ROW = 26;
// Runs that are loaded before the end of what is loaded comes in sight.
const AHEAD = 10;

export function RunsScreen() {
  const parsed = useMemo(() => computed(() => parseFilter(address.value.q)), []);
  const filter = useMemo(() => computed(() => JSON.stringify(parsed.value.filter)), []);
  const model = useMemo(() => new RunsModel(computed(() => JSON.parse(filter.value))), []);
  useEffect(() => () => model.close(), []);
  const chosen = useSignal(0);
  const compared = useSignal("");
  const rows = model.rows.value;
  const current = Math.min(chosen.value, rows.length - 1);

  useWaiting(model.isLoading.value && model.isOutdated);
  const move = (by: number) => () => {
    chosen.value = Math.max(0, Math.min(rows.length - 1, current + by));
  };
  useAction("event.next", move(1));
  useAction("event.previous", move(-1));
  useAction("first", move(-rows.length));
  useAction("last", move(rows.length));
  useAction("row.open", () => {
    const run = rows[current]?.info.run_id;
    if (run) jump({ screen: "run", run, at: null, q: "", pin: "" });
  });
  useAction("compare", () => {
    const run = rows[current]?.info.run_id ?? "";
    if (compared.value && compared.value !== run) {
      jump({ screen: "compare", run: compared.value, other: run, at: null, q: "" });
    } else compared.value = compared.value ? "" : run;
  });

  const isEmpty = !model.isLoading.value && rows.length === 0 && !model.problem.value;
  return (
    <main class="screen runs">
      <FilterBox wrong={parsed.value.wrong} />
      {model.problem.value && <ProblemNote problem={model.problem.value} again={() => void model.reload()} />}
      {Object.entries(model.damaged.value).map(([run, reason]) => (
        <p class="damaged-run" role="alert" key={run}>
          Run <code>{run}</code> can't be read: <Text value={reason} />
        </p>
      ))}
      <div class="listed">
        <Facets />
        <div class="table">
          <div class="run-row heads">
            {["status", "run", "shape", "events", "tokens", "took", "started", "tags"].map((name) => (
              <span key={name} class={["events", "tokens", "took"].includes(name) ? "figure" : ""}>
                {name}
              </span>
            ))}
          </div>
          {isEmpty && (address.value.q ? <p class="none">No run has this filter.</p> : <EmptyLedger />)}
          <Rows
            count={rows.length}
            height={ROW}
            current={current}
            label="Runs"
            onSight={(_first, last) => {
              if (last + AHEAD >= rows.length && model.hasMore.peek() && !model.isLoading.peek()) void model.more();
            }}
            row={(place) => {
              const row = rows[place]!;
              const run = row.info.run_id;
              return (
                <RunRow row={row} isChosen={place === current} isFresh={model.fresh.value.has(run)} isCompared={compared.value === run} />
              );
            }}
          />
          <p class="foot" role="status">
            {model.isLoading.value ? "Loading…" : count(rows.length, "run")}
            {model.hasMore.value && ", more exist"}
            {model.connection.value === "lost" && " · connection lost, trying again"}
            {compared.value && " · choose the run to compare with, and press c"}
          </p>
        </div>
      </div>
    </main>
  );
}

function FilterBox({ wrong }: { wrong: string }) {
  const box = useRef<HTMLInputElement>(null);
  useAction("search", () => box.current?.select());
  return (
    <div class="filter">
      <label>
        Filter{" "}
        <input
          ref={box}
          type="search"
          value={address.value.q}
          placeholder="status:waiting agent:name tag:key=value since:2026-01-31, or part of an id"
          aria-invalid={wrong !== ""}
          onInput={(event) => step({ q: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key !== "Enter" && event.key !== "Escape") return;
            // Else the browser empties the box, and the filter stays.
            event.preventDefault();
            event.currentTarget.blur();
          }}
        />
      </label>
      {wrong && (
        <span class="wrong" role="alert">
          <Text value={wrong} />
        </span>
      )}
    </div>
  );
}
