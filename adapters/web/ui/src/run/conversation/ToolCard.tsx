/** A tool call: its arguments, how it stands, its result, and the decision that it waits for. */
import { duration, number } from "../../core/format";
import { Text } from "../../parts/Text";
import { visible } from "../../core/text";
import { CallText } from "../../parts/doubt/CallText";
import { isOver, lastingDecision, question, statusOf, SYMBOL, type Call } from "../../parts/doubt/call";
import { At, DecidedLine, DoubtCard } from "../../parts/doubt/DoubtCard";
import { useVersions } from "../../parts/doubt/facts";
import { useRun } from "../model";
import { BlockText } from "./Blocks";
import type { Part, Placed } from "./turns";

// What the model is told of a call without a result.
const STUB = "[internal: tool call did not complete]";

interface Props {
  part: Part;
  at: number;
  isNew: boolean;
}

export function ToolCard({ part, at, isNew }: Props) {
  const { block, result, call } = part;
  const status = call?.status ?? (result ? (result.block.is_error ? "failed" : "completed") : "pending");
  const name = block.name ?? call?.name ?? "";
  return (
    <article class={`call call-${status}${isNew ? " new" : ""}`} data-call={block.call_id} aria-label={`Tool call ${visible(name)}`}>
      <header>
        <span class="symbol" aria-hidden="true">
          {SYMBOL[status]}
        </span>
        <Text value={name} class="name" />
        <Text value={block.call_id ?? ""} class="mono id" />
        <span class="standing">{call ? standingOf(call) : result ? status : ""}</span>
      </header>
      <pre class="given">
        <BlockText part={part} field="arguments" at={at} />
      </pre>
      {call && <CallState call={call} />}
      {result && <Result result={result} call={call} at={at} />}
    </article>
  );
}

/** A call that no turn here asks for: a step, or one that is further up. */
export function OtherCard({ call, isNew }: { call: Call; isNew: boolean }) {
  const model = useRun();
  return (
    <article class={`call call-${call.status}${isNew ? " new" : ""}`} data-call={call.call_id} aria-label={`Call ${visible(call.name)}`}>
      <header>
        <span class="symbol" aria-hidden="true">
          {SYMBOL[call.status]}
        </span>
        <Text value={call.name || "step"} class="name" />
        <Text value={call.call_id} class="mono id" />
        <span class="standing">{standingOf(call)}</span>
      </header>
      {call.arguments && (
        <pre class="given">
          <CallText run={model.run} call={call} field="arguments" />
        </pre>
      )}
      <CallState call={call} />
    </article>
  );
}

/** "completed, 2 attempts, 3.1 s". */
function standingOf(call: Call): string {
  const words = [statusOf(call)];
  if ((call.attempts ?? 0) > 1) words.push(`${number(call.attempts!)} attempts`);
  if (call.started_at && call.ended_at) {
    words.push(duration((Date.parse(call.ended_at) - Date.parse(call.started_at)) / 1000));
  }
  return words.join(", ");
}

function CallState({ call }: { call: Call }) {
  const model = useRun();
  const isEdited = call.edited_arguments && call.edited_arguments !== call.arguments;
  const isPast = call.at < model.head.value;
  const isAsked = question(call) !== "none" && (call.status !== "started" || !isPast);
  return (
    <>
      {isEdited && (
        <p class="edited">
          Run with other arguments: <CallText run={model.run} call={call} field="edited_arguments" class="mono" />
        </p>
      )}
      {call.error_message && (
        <p class="error">
          <Text value={call.error_type ?? "error"} class="mono" />: <CallText run={model.run} call={call} field="error_message" />
        </p>
      )}
      {isOver(call) && call.doubt && <DoubtLine call={call} />}
      {isOver(call) && lastingDecision(call) && <DecidedLine run={model.run} call={call} />}
      {isAsked && <DoubtCard run={model.run} call={call} isPast={isPast} isInside />}
    </>
  );
}

/** "In doubt at event 19: …". */
function DoubtLine({ call }: { call: Call }) {
  const model = useRun();
  const versions = useVersions(model.run, call, ["doubt"]);
  return (
    <p class="doubted">
      In doubt{versions.doubt && <At run={model.run} version={versions.doubt} />}: <CallText run={model.run} call={call} field="doubt" />
    </p>
  );
}

function Result({ result, call, at }: { result: Placed; call: Call | undefined; at: number }) {
  const model = useRun();
  const isStub = result.block.content === STUB && result.block.is_error;
  const isAmended = call?.amended !== undefined && call.amended !== null;
  const label = isStub ? "no result; the model is told" : result.block.is_error ? "error" : "result";
  return (
    <div class={`result${result.isNew ? " new" : ""}`}>
      <span class="label">{isAmended ? "result as the model has it, amended" : label}</span>
      <BlockText part={result} field="content" at={at} />
      {isAmended && call.result && (
        <>
          <span class="label">as the tool gave it</span>
          <CallText run={model.run} call={call} field="result" />
        </>
      )}
    </div>
  );
}
