/** Compare with another run: one of the same agent or prompt, or one whose id is pasted. */
import { useSignal } from "@preact/signals";
import "../../compare/compare.css";
import { useAction } from "../../core/actions";
import { jump } from "../../core/address";
import { ask, client, type Schemas } from "../../core/api";
import { count, shortId, when } from "../../core/format";
import { useLoader } from "../../core/loading";
import { Dialog } from "../../parts/Dialog";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useRun, type RunInfo } from "../model";

const LISTED = 50;
const ID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/i;

export function CompareWith() {
  const isShown = useSignal(false);
  const show = () => {
    isShown.value = true;
  };
  useAction("compare", show);
  return (
    <>
      <button onClick={show}>Compare</button>
      {isShown.value && (
        <Dialog title="Compare with another run" close={() => (isShown.value = false)} wide>
          <Choice />
        </Dialog>
      )}
    </>
  );
}

function Choice() {
  const model = useRun();
  const text = useSignal("");
  const isWrong = useSignal(false);
  const compare = (other: string) => jump({ screen: "compare", run: model.run, other, at: null, q: "", pin: "", tab: "changed" });

  function pasted(event: Event): void {
    event.preventDefault();
    // A link to a run has its id too.
    const found = ID.exec(text.value)?.[0];
    isWrong.value = !found;
    if (found) compare(found.toLowerCase());
  }

  return (
    <div class="compare-with">
      <form onSubmit={pasted}>
        <input
          autofocus
          aria-label="Id of the other run"
          placeholder="Id of the other run, or a link to it"
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value;
            isWrong.value = false;
          }}
        />
        <button>Compare</button>
      </form>
      {isWrong.value && <p role="alert">There is no run's id in this: expected 36 characters such as {model.run}.</p>}
      <Recent compare={compare} />
    </div>
  );
}

/** Recent runs of the same agent, or, if it has none, of the same prompt. */
function Recent({ compare }: { compare: (run: string) => void }) {
  const model = useRun();
  const runs = useLoader(
    () => model.info.value && { agent: model.info.value.agent, prompt: model.info.value.prompt },
    async ({ agent, prompt }, signal) => {
      const query = { limit: LISTED, ...(agent ? { agent } : prompt ? { prompt } : {}) };
      return (await ask(client.GET("/v1/runs", { params: { query }, signal }))) as Schemas["RunPage"];
    },
  );
  const { value, problem } = runs.loaded.value;
  if (problem) return <ProblemNote problem={problem} again={runs.again} />;
  if (!value) return <p role="status">Loading…</p>;
  const others = value.runs.filter((one) => one.run_id !== model.run);
  if (others.length === 0) return <p>This agent has no other run. Paste the id of any run above.</p>;
  return (
    <ul aria-label="Recent runs of this agent">
      {others.map((one) => (
        <li key={one.run_id}>
          <button onClick={() => compare(one.run_id)} title={one.run_id}>
            <Listed info={one} />
          </button>
        </li>
      ))}
    </ul>
  );
}

function Listed({ info }: { info: RunInfo }) {
  return (
    <>
      <span class={`status status-${info.status}`}>{info.status}</span>
      <span>
        <Text value={info.agent || info.prompt || "run"} /> <code>{shortId(info.run_id)}</code>
      </span>
      <span>{count(info.version, "event")}</span>
      <span>{when(info.started_at)}</span>
    </>
  );
}
