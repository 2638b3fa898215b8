/** The pinned value: what it is at this version, and only its changes. */
import { useEffect, useMemo } from "preact/hooks";
import { address } from "../../core/address";
import { count, number } from "../../core/format";
import { kindOfType } from "../../core/kinds";
import { JsonValue } from "../../parts/json/JsonValue";
import { preview } from "../../parts/json/values";
import { ProblemNote } from "../../parts/Problem";
import { Rows } from "../../parts/Rows";
import { Text } from "../../parts/Text";
import { useRun } from "../model";
import { Pins, togglePin } from "./pins";
import type { ValueChange } from "./values";
import "./blame.css";

const ROW = 20;

export function PinBar() {
  const model = useRun();
  const pins = useMemo(() => new Pins(model), [model]);
  useEffect(() => () => pins.close(), [pins]);
  const { pin } = address.value;
  if (pin === "") return null;
  return (
    <section class="pin-bar" aria-label="Pinned value">
      <div class="bar-line">
        <span class="quiet">pinned</span>
        <code class="path">
          <Text value={pin} />
        </code>
        <button
          aria-label="Previous change of the pinned value"
          title="Previous change"
          disabled={pins.isComplete.value && pins.neighbour(false) === 0}
          onClick={() => void pins.go(false)}
        >
          ‹
        </button>
        <button
          aria-label="Next change of the pinned value"
          title="Next change"
          disabled={pins.neighbour(true) === 0}
          onClick={() => void pins.go(true)}
        >
          ›
        </button>
        <button class="plain" aria-label="Unpin" title="Unpin (p)" onClick={() => togglePin(pin)}>
          ✕
        </button>
      </div>
      <ValueNow pins={pins} />
      <Changes pins={pins} />
    </section>
  );
}

function ValueNow({ pins }: { pins: Pins }) {
  const model = useRun();
  const { change, isKnown } = pins.at.value;
  const isThere = change !== null && change.op !== "remove";
  return (
    <div class="bar-line now" role="status">
      <span>at {number(model.at.value)}</span>
      {isThere && <Small change={change} side="value" />}
      {isKnown && !isThere && <span class="quiet">not in the state</span>}
      {!isKnown && !pins.problem.value && <span class="skeleton" />}
    </div>
  );
}

function Changes({ pins }: { pins: Pins }) {
  const model = useRun();
  const changes = pins.changes.value;
  const { value: next } = pins.next;
  if (pins.problem.value) return <ProblemNote problem={pins.problem.value} again={() => pins.again()} />;
  const at = model.at.value;
  const current = changes.findIndex((change) => change.version <= at);
  return (
    <>
      {changes.length > 0 && (
        <div class="changes" style={{ height: `${Math.min(changes.length, 5) * ROW}px` }}>
          <Rows
            count={changes.length}
            height={ROW}
            current={current}
            label="Changes of the pinned value"
            row={(place) => <ChangeLine change={changes[place]!} isCurrent={place === current} />}
          />
        </div>
      )}
      <div class="bar-line quiet">
        {changes.length === 0 && next === null && !pins.isLoading.value && "No event changed it."}
        {changes.length > 0 && count(changes.length, "change")}
        {next === null && changes.length > 0 && " in all"}
        {next !== null && " shown, more may exist"}
        {next !== null && (
          <button disabled={pins.isLoading.value} onClick={() => void pins.more()}>
            Search before {number(next)}
          </button>
        )}
        {pins.isLoading.value && <span>searching …</span>}
      </div>
    </>
  );
}

function ChangeLine({ change, isCurrent }: { change: ValueChange; isCurrent: boolean }) {
  const model = useRun();
  const kind = kindOfType(change.type);
  return (
    <div
      class={`change-line kind-${kind.kind} ${isCurrent ? "current" : ""}`}
      role="option"
      aria-selected={isCurrent}
      onClick={() => model.jumpTo(change.version)}
    >
      <span class="version">{number(change.version)}</span>
      <span class="symbol" aria-hidden="true">
        {kind.symbol}
      </span>
      <span class="type">
        <Text value={change.type} />
      </span>
      <span class="said">
        {change.op === "add" ? <i>nothing</i> : <Small change={change} side="was" />}
        {" → "}
        {change.op === "remove" ? <i>nothing</i> : <Small change={change} side="value" />}
      </span>
    </div>
  );
}

function Small({ change, side }: { change: ValueChange; side: "was" | "value" }) {
  const value = change[side];
  const cuts = change.cuts[side];
  return <JsonValue value={value} total={cuts.get("")?.total} preview={preview(value, "", cuts)} />;
}
