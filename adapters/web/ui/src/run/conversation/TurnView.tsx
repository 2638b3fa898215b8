/** A turn: who speaks, and its blocks. */
import { useState } from "preact/hooks";
import { number } from "../../core/format";
import { Text } from "../../parts/Text";
import { LooseResult, MediaBlock, TextBlock } from "./Blocks";
import { ToolCard } from "./ToolCard";
import { BLOCKS, type Marks, type Part, type ShownTurn } from "./turns";

const ROLES = { user: "User", assistant: "Assistant" };

export function TurnView({ turn, at, marks }: { turn: ShownTurn; at: number; marks: Marks }) {
  const [from, setFrom] = useState(0);
  const parts = turn.parts.slice(from, from + BLOCKS);
  const after = turn.parts.length - from - parts.length + turn.left;
  if (turn.isSynthetic) return <p class="synthetic">The conversation begins with the assistant.</p>;
  return (
    <article class={`turn turn-${turn.role}${turn.isNew ? " new" : ""}`} data-turn={turn.place}>
      <h3>
        {ROLES[turn.role]}
        {turn.isNew && <span class="badge">added by this event</span>}
      </h3>
      {from > 0 && <button onClick={() => setFrom(from - BLOCKS)}>{number(from)} blocks before</button>}
      {parts.map((part) => (
        <PartView key={part.pointer} part={part} at={at} isNew={isPartNew(part, turn, marks)} />
      ))}
      {after > 0 && (
        <p class="left">
          {number(after)} more blocks
          {from + BLOCKS < turn.parts.length ? (
            <button onClick={() => setFrom(from + BLOCKS)}>Show them</button>
          ) : (
            " are in the state, at "
          )}
          {from + BLOCKS >= turn.parts.length && <code>/history/turns/{turn.place}/blocks</code>}
        </p>
      )}
    </article>
  );
}

/** Whether the event added a part of a turn that was there before, or changed the call's state. */
function isPartNew(part: Part, turn: ShownTurn, marks: Marks): boolean {
  if (turn.isNew) return false;
  const isCallNew = part.call !== undefined && marks.version > 0 && marks.calls.has(part.call.number - 1);
  return part.isNew || part.result?.isNew === true || isCallNew;
}

function PartView({ part, at, isNew }: { part: Part; at: number; isNew: boolean }) {
  if (part.block.kind === "tool_use") return <ToolCard part={part} at={at} isNew={isNew} />;
  return <div class={`block${isNew ? " new" : ""}`}>{shown(part, at)}</div>;
}

function shown(part: Part, at: number) {
  switch (part.block.kind) {
    case "text":
      return <TextBlock part={part} at={at} />;
    case "media":
      return <MediaBlock part={part} />;
    case "tool_result":
      return <LooseResult part={part} at={at} />;
    default:
      return <Text value={JSON.stringify(part.block)} lines class="mono" />;
  }
}
