/** Copies the event or the run, as JSON, curl, Python or a test; and downloads the run. */
import { useSignal } from "@preact/signals";
import { useAction } from "../../core/actions";
import { Problem, request } from "../../core/api";
import { number } from "../../core/format";
import { parsed } from "../../core/json";
import { Dialog } from "../../parts/Dialog";
import { ProblemNote } from "../../parts/Problem";
import { useRun, type RunModel } from "../model";

interface Form {
  name: string;
  about: string;
  text: (model: RunModel, at: number) => string | Promise<string>;
}

const FORMS: Form[] = [
  {
    name: "JSON",
    about: "the event, whole, with its id, time and digest",
    text: async (model, at) => {
      const response = await request(`/v1/runs/${model.run}/events/${at}`);
      return JSON.stringify(parsed(await response.text()), null, 2);
    },
  },
  {
    name: "curl",
    about: "the request for this event",
    text: (model, at) =>
      `curl -H "Authorization: Bearer $TURNLEDGER_TOKEN" '${location.origin}/v1/runs/${model.run}/events/${at}'`,
  },
  {
    name: "Python",
    about: "the state at this event, in a program",
    text: (model, at) =>
      [
        "from turnledger.adapters.http import LedgerClient",
        "from turnledger.projections import state_at",
        "",
        `with LedgerClient("${location.origin}") as ledger:  # its token is in $TURNLEDGER_TOKEN`,
        `    state = state_at(ledger, "${model.run}", ${at})`,
        "    print(state.history.to_list())",
      ].join("\n"),
  },
  {
    name: "pytest",
    about: "a test that replays the run on your agent; download the run beside it",
    text: (model) =>
      [
        "from my_module import agent  # your agent",
        "",
        "",
        "def test_the_run_replays(turnledger_replay):",
        `    """Run ${model.run} replays without a divergence."""`,
        `    turnledger_replay("${model.run}.jsonl", agent, run="${model.run}")`,
        "",
      ].join("\n"),
  },
];

export function Copy() {
  const model = useRun();
  const shown = useSignal(0);
  const said = useSignal("");
  const problem = useSignal<Problem | null>(null);
  const show = () => {
    said.value = "";
    problem.value = null;
    shown.value = model.at.peek();
  };
  useAction("copy", show);
  useAction("download", () => void download());

  async function copy(form: Form): Promise<void> {
    problem.value = null;
    try {
      await navigator.clipboard.writeText(await form.text(model, shown.value));
      said.value = `${form.name} is copied.`;
    } catch (error) {
      problem.value =
        error instanceof Problem ? error : new Problem(0, "page", "The browser did not let the page copy", String(error));
    }
  }

  async function download(): Promise<void> {
    try {
      const response = await request(`/v1/runs/${model.run}/export`);
      const address = URL.createObjectURL(await response.blob());
      const link = document.createElement("a");
      link.href = address;
      link.download = `${model.run}.jsonl`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (error) {
      shown.value = model.at.peek();
      problem.value = error as Problem;
    }
  }

  return (
    <>
      <button onClick={show}>Copy</button>
      <button onClick={() => void download()}>Download</button>
      {shown.value > 0 && (
        <Dialog title={`Copy event ${number(shown.value)}, or the run`} close={() => (shown.value = 0)}>
          <ul class="forms">
            {FORMS.map((form) => (
              <li key={form.name}>
                <button onClick={() => void copy(form)}>{form.name}</button> {form.about}
              </li>
            ))}
          </ul>
          <p role="status">{said.value}</p>
          {problem.value && <ProblemNote problem={problem.value} />}
        </Dialog>
      )}
    </>
  );
}
