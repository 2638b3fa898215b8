/** Verifies a run on demand: its digests are recomputed. A run that was not verified never looks so. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useAction } from "../../core/actions";
import { Problem, request, type Schemas } from "../../core/api";
import { count, number, shortId } from "../../core/format";
import { Dialog } from "../../parts/Dialog";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useRun } from "../model";

type Report = Schemas["Verified"];
type Line = { records: number; of: number } | { report: Report };
type State =
  | { step: "not" }
  | { step: "going"; records: number; of: number }
  | { step: "done"; report: Report; version: number }
  | { step: "failed"; problem: Problem };

export function Verify() {
  const model = useRun();
  const state = useSignal<State>({ step: "not" });
  const isShown = useSignal(false);
  const abort = useRef(new AbortController());
  useAction("verify", () => void verify());
  useEffect(() => () => abort.current.abort(), []);

  async function verify(): Promise<void> {
    abort.current.abort();
    abort.current = new AbortController();
    const { signal } = abort.current;
    const version = model.head.peek();
    state.value = { step: "going", records: 0, of: version };
    model.damaged.value = new Map();
    try {
      const headers = { Accept: "application/x-ndjson" };
      const response = await request(`/v1/runs/${model.run}/verify`, { headers, signal });
      for await (const line of linesOf(response)) {
        if ("report" in line) {
          state.value = { step: "done", report: line.report, version };
          model.damaged.value = damageOf(line.report, version);
          isShown.value = !line.report.ok;
        } else state.value = { step: "going", ...line };
      }
    } catch (error) {
      if (signal.aborted) return;
      const problem = error instanceof Problem ? error : new Problem(0, "page", "The answer was cut off", String(error));
      state.value = { step: "failed", problem };
    }
  }

  const now = state.value;
  return (
    <>
      {now.step === "not" && <button onClick={() => void verify()}>Verify</button>}
      {now.step === "going" && (
        <span class="verified" role="status">
          <progress max={Math.max(now.of, 1)} value={now.records} /> {number(now.records)} of {number(now.of)}{" "}
          <button
            onClick={() => {
              abort.current.abort();
              state.value = { step: "not" };
            }}
          >
            Stop
          </button>
        </span>
      )}
      {now.step === "failed" && (
        <Dialog title="Verify" close={() => (state.value = { step: "not" })}>
          <ProblemNote problem={now.problem} again={() => void verify()} />
        </Dialog>
      )}
      {now.step === "done" && (
        <button class={`verified ${now.report.ok ? "good" : "bad"}`} onClick={() => (isShown.value = true)}>
          {now.report.ok ? `✓ verified up to ${number(now.version)}` : `✕ ${count(now.report.problems.length, "problem")}`}
        </button>
      )}
      {now.step === "done" && isShown.value && (
        <Dialog title={now.report.ok ? "Verified" : "This run was changed"} close={() => (isShown.value = false)}>
          <Found report={now.report} go={(version) => model.jumpTo(version)} close={() => (isShown.value = false)} />
          <button onClick={() => void verify()}>Verify again</button>
        </Dialog>
      )}
    </>
  );
}

function Found({ report, go, close }: { report: Report; go: (version: number) => void; close: () => void }) {
  return (
    <>
      <p>
        {count(report.records, "record")} of {count(report.runs, "run")} and {count(report.blobs, "blob")} were recomputed.
      </p>
      <dl class="damage">
        {report.problems.slice(0, 100).map((problem, place) => (
          <div key={place}>
            <dt>
              {problem.version == null ? (
                "Beside its events"
              ) : (
                <button
                  onClick={() => {
                    close();
                    go(problem.version!);
                  }}
                >
                  Event {number(problem.version)} of {shortId(problem.run_id)}
                </button>
              )}
            </dt>
            <dd>
              <Text value={problem.what} lines />
            </dd>
          </div>
        ))}
      </dl>
      {report.notes.map((note) => (
        <p key={note}>
          <Text value={note} />
        </p>
      ))}
    </>
  );
}

/** What is wrong, by version; all that comes after a changed record is not known to be unchanged. */
function damageOf(report: Report, head: number): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  for (const problem of report.problems) {
    if (problem.version != null && problem.version <= head) found.set(problem.version, problem.what);
  }
  return found;
}

async function* linesOf(response: Response): AsyncGenerator<Line> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line) yield JSON.parse(line) as Line;
  }
}
