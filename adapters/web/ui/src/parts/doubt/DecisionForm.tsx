/** The choices about a call, what each needs, and the event that is appended. */
import { useId } from "preact/hooks";
import { Text } from "../Text";
import { lastingDecision, type Call, type Decision, type Question } from "./call";
import { decider, rememberDecider, type Draft } from "./decision";

interface Choice {
  decision: Decision;
  label: string;
}

const CHOICES: Record<Question, readonly Choice[]> = {
  none: [],
  outcome: [
    { decision: "completed", label: "It happened, with this value" },
    { decision: "failed", label: "It did not happen" },
    { decision: "retry", label: "Run it again" },
  ],
  approval: [
    { decision: "approve", label: "Approve" },
    { decision: "deny", label: "Deny" },
    { decision: "edit", label: "Approve with other arguments" },
  ],
};

interface Props {
  draft: Draft;
  call: Call;
  asked: Question;
}

export function DecisionForm({ draft, call, asked }: Props) {
  const name = useId();
  const chosen = draft.choice.value;
  const isShort = call.totals["/arguments"] === undefined && call.totals["/edited_arguments"] === undefined;
  const isSending = draft.progress.value.kind === "sending";
  return (
    <form
      class="decide"
      onSubmit={(event) => {
        event.preventDefault();
        void draft.send();
      }}
    >
      <fieldset disabled={isSending}>
        <legend>{lastingDecision(call) ? "Decide otherwise" : asked === "approval" ? "May it run?" : "What became of it?"}</legend>
        <div class="choices">
          {CHOICES[asked].map(({ decision, label }) => (
            <label key={decision}>
              <input
                type="radio"
                name={name}
                checked={chosen === decision}
                onChange={() => draft.choose(decision, call)}
              />
              {label}
            </label>
          ))}
        </div>
        {chosen && <Needed draft={draft} chosen={chosen} isShort={isShort} />}
        {chosen && <Appended draft={draft} isSending={isSending} />}
      </fieldset>
    </form>
  );
}

/** What a choice needs besides itself. */
function Needed({ draft, chosen, isShort }: { draft: Draft; chosen: Decision; isShort: boolean }) {
  if (chosen === "completed") return <Field label="The value that it gave, as JSON" text={draft.value} isJson />;
  if (chosen === "failed") return <Field label="Why it did not happen; the model is told this" text={draft.reason} />;
  if (chosen === "deny") return <Field label="Why it must not run; the model is told this" text={draft.reason} />;
  if (chosen === "retry") {
    return <p class="note">It runs again when the run is recovered. If it has happened already, it happens twice.</p>;
  }
  if (chosen !== "edit") return null;
  if (!isShort) {
    return <p class="note">The arguments are too long to be edited here: use turnledger resolve with --edit.</p>;
  }
  return <Field label="All arguments, as a JSON object" text={draft.arguments} isJson />;
}

function Field({ label, text, isJson = false }: { label: string; text: Draft["value"]; isJson?: boolean }) {
  return (
    <label class="field">
      {label}
      <textarea
        class={isJson ? "mono" : ""}
        rows={isJson ? 4 : 2}
        spellcheck={!isJson}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
      />
    </label>
  );
}

/** The event, before it is sent. */
function Appended({ draft, isSending }: { draft: Draft; isSending: boolean }) {
  const missing = draft.missing.value;
  return (
    <>
      <label class="field">
        Who decides
        <input
          type="text"
          autocomplete="off"
          maxLength={200}
          value={decider.value}
          onInput={(event) => rememberDecider(event.currentTarget.value)}
        />
      </label>
      {missing ? (
        <p class="missing" role="status">
          <Text value={missing} lines />
        </p>
      ) : (
        <div class="appended">
          This event is appended to the run:
          <pre tabIndex={0}>
            <Text value={draft.event.value} lines />
          </pre>
        </div>
      )}
      <p class="choices">
        <button type="submit" class="main" disabled={missing !== "" || isSending}>
          Record the decision
        </button>
        <button type="button" onClick={() => draft.forget()}>
          Cancel
        </button>
      </p>
    </>
  );
}
