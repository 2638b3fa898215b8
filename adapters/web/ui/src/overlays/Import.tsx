/** Imports a file that `turnledger export` wrote: dropped on the page, or chosen. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useAction } from "../core/actions";
import { Problem, request, type Schemas } from "../core/api";
import { bytes, count } from "../core/format";
import { Dialog } from "../parts/Dialog";
import { Link } from "../parts/Link";
import { ProblemNote } from "../parts/Problem";
import { Text } from "../parts/Text";

type State =
  | { step: "none" }
  | { step: "chosen"; file: File }
  | { step: "sending"; file: File }
  | { step: "done"; file: File; report: Schemas["Imported"] }
  | { step: "failed"; file: File; problem: Problem };

export function Import() {
  const state = useSignal<State>({ step: "none" });
  const isOver = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  useAction("import", () => input.current?.click());

  useEffect(() => {
    const hasFile = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const over = (event: DragEvent) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      isOver.value = true;
    };
    const left = (event: DragEvent) => {
      if (event.relatedTarget === null) isOver.value = false;
    };
    const dropped = (event: DragEvent) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      isOver.value = false;
      const file = event.dataTransfer?.files[0];
      if (file) state.value = { step: "chosen", file };
    };
    window.addEventListener("dragover", over);
    window.addEventListener("dragleave", left);
    window.addEventListener("drop", dropped);
    return () => {
      window.removeEventListener("dragover", over);
      window.removeEventListener("dragleave", left);
      window.removeEventListener("drop", dropped);
    };
  }, []);

  async function send(file: File): Promise<void> {
    state.value = { step: "sending", file };
    try {
      const headers = { "Content-Type": "application/x-ndjson" };
      const response = await request("/v1/import", { method: "POST", body: file, headers });
      state.value = { step: "done", file, report: (await response.json()) as Schemas["Imported"] };
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, "page", "The file can't be read", String(error));
      state.value = { step: "failed", file, problem };
    }
  }

  const now = state.value;
  const close = () => {
    state.value = { step: "none" };
  };
  return (
    <>
      <button onClick={() => input.current?.click()}>Import</button>
      <input
        ref={input}
        type="file"
        hidden
        aria-label="File to import"
        accept=".jsonl,.ndjson,application/x-ndjson"
        onChange={(event) => {
          const file = event.currentTarget.files?.[0];
          event.currentTarget.value = "";
          if (file) state.value = { step: "chosen", file };
        }}
      />
      {isOver.value && <div class="drop">Drop an export here to import it</div>}
      {now.step !== "none" && (
        <Dialog title="Import" close={close}>
          <p>
            <Text value={now.file.name} />, {bytes(now.file.size)}
          </p>
          {now.step === "chosen" && (
            <>
              <p>The whole file is checked before anything is written. What the ledger has stays as it is.</p>
              <button autofocus onClick={() => void send(now.file)}>
                Import
              </button>
            </>
          )}
          {now.step === "sending" && <p role="status">Importing…</p>}
          {now.step === "failed" && <ProblemNote problem={now.problem} again={() => void send(now.file)} />}
          {now.step === "done" && <Report report={now.report} />}
        </Dialog>
      )}
    </>
  );
}

function Report({ report }: { report: Schemas["Imported"] }) {
  return (
    <div role="status">
      <p>
        {count(report.imported, "event")} of {count(report.runs, "run")} imported.
        {report.already_there > 0 && ` ${count(report.already_there, "event")} were there already.`}
        {report.blobs > 0 && ` ${count(report.blobs, "blob")} came with them.`}
      </p>
      {report.redacted > 0 && <p>Secrets were replaced in {count(report.redacted, "event")}.</p>}
      {report.rechained.length > 0 && (
        <p>These runs have other digests than in the file, since secrets were replaced in them:</p>
      )}
      <ul>
        {report.rechained.slice(0, 20).map((run) => (
          <li key={run}>
            <Link to={{ screen: "run", run }}>{run}</Link>
          </li>
        ))}
      </ul>
      <p>
        <Link to={{ screen: "runs" }}>The list of runs</Link> has them.
      </p>
    </div>
  );
}
