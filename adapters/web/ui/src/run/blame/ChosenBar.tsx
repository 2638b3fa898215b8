/** The value that is chosen: its path, which event set it, and what can be done with it. */
import { address } from "../../core/address";
import { useAction } from "../../core/actions";
import { number, shortId } from "../../core/format";
import { Text } from "../../parts/Text";
import { useRun } from "../model";
import { useChoice, type Blame } from "./choice";
import { togglePin } from "./pins";
import "./blame.css";

export function ChosenBar() {
  const model = useRun();
  const choice = useChoice();
  const chosen = model.chosen.value;
  const left = choice.left.value.at(-1);
  useAction("blame", () => void choice.go(), chosen !== "");
  useAction("blame.back", () => choice.back(), left !== undefined);
  useAction("pin", () => togglePin(chosen), chosen !== "" || address.value.pin !== "");
  if (chosen === "" && !left) return null;
  return (
    <section class="chosen-bar" aria-label="Chosen value">
      {chosen !== "" && (
        <div class="bar-line">
          <code class="path">
            <Text value={chosen} />
          </code>
          <button title="Go to the event that set it (b)" onClick={() => void choice.go()}>
            Blame
          </button>
          <button
            title="Show its changes only (p)"
            aria-pressed={address.value.pin === chosen}
            onClick={() => togglePin(chosen)}
          >
            {address.value.pin === chosen ? "Unpin" : "Pin"}
          </button>
          <button class="plain" aria-label="Choose nothing" title="Choose nothing" onClick={() => choice.forget()}>
            ✕
          </button>
        </div>
      )}
      <div class="bar-line" role="status">
        <Said />
        {left && (
          <button title="Come back from there (B)" onClick={() => choice.back()}>
            Back to {left.at === null ? "the end" : number(left.at)}
          </button>
        )}
      </div>
    </section>
  );
}

function Said() {
  const model = useRun();
  const choice = useChoice();
  const blame = choice.blame.value;
  if (model.chosen.value === "") return null;
  if (!blame || blame.pointer !== model.chosen.value) {
    return <span class="quiet">Click or Enter: which event set it. b goes there.</span>;
  }
  if (blame.problem) {
    const isMissing = blame.problem.type === "not-found";
    return (
      <span class="failed" role="alert">
        {isMissing ? `There is no such value at version ${number(blame.at)}.` : `${blame.problem.title}. `}
        {!isMissing && <Text value={blame.problem.message} />}
        {!isMissing && <button onClick={() => void choice.ask()}>Try again</button>}
      </span>
    );
  }
  if (!blame.event) {
    return (
      <>
        <span>Looking for the event that set it …</span>
        <button onClick={() => choice.cancel()}>Cancel</button>
      </>
    );
  }
  return <Found blame={blame} />;
}

function Found({ blame }: { blame: Blame }) {
  const model = useRun();
  const event = blame.event!;
  const isHere = event.version === model.at.value;
  const isFirst = event.version === 1;
  const isShared = event.run_id !== model.run;
  return (
    <span class="found">
      {isFirst && "unchanged since the run began: "}
      set by {isHere ? "this event, " : "event "}
      <button class="link" disabled={isHere} title="Go there (b)" onClick={() => model.jumpTo(event.version)}>
        {number(event.version)} <Text value={event.type} />
      </button>
      {isShared && (
        <>
          {" "}
          of run <code title={event.run_id}>{shortId(event.run_id)}</code>, which this one was forked from
        </>
      )}
    </span>
  );
}
