/** A text or a value of a call, whole or in slices. */
import { LongText } from "../LongText";
import type { Call } from "./call";

type TextField = "arguments" | "edited_arguments" | "result" | "error_message" | "doubt" | "decision_text" | "approval_text";

export function CallText({ run, call, field, class: name }: { run: string; call: Call; field: TextField; class?: string }) {
  const pointer = `/tools/${call.number - 1}/${field}`;
  return <LongText value={call[field] ?? ""} total={call.totals[`/${field}`]} source={{ run, at: call.at, pointer }} class={name} isBoxed />;
}

/** The value that a person gave; it says if it was shortened. */
export function DecidedValue({ run, call }: { run: string; call: Call }) {
  const given = call.decision_value;
  const source = { run, at: call.at, pointer: `/tools/${call.number - 1}/decision_value` };
  if (typeof given === "string") {
    return <LongText value={given} total={call.totals["/decision_value"]} source={source} class="mono" isBoxed />;
  }
  const isShortened = Object.keys(call.totals).some((pointer) => pointer.startsWith("/decision_value"));
  return (
    <>
      <LongText value={JSON.stringify(given ?? null)} source={source} class="mono" isBoxed />
      {isShortened && (
        <span class="quiet">
          {" "}
          (shortened; the whole is in the state at <code>{source.pointer}</code>)
        </span>
      )}
    </>
  );
}
