/** One row of a JSON tree. */
import { number } from "../../core/format";
import { Text } from "../Text";
import { JsonValue } from "./JsonValue";
import type { OtherRow, Row, ValueRow } from "./tree";

interface Props {
  id: string;
  row: Row;
  name: string | undefined;
  isAtCursor: boolean;
  isChosen: boolean;
  isMarked: boolean;
  isStale: boolean;
  onClick: () => void;
  onToggle: () => void;
  onMore: (direction: "before" | "after") => void;
}

// Deeper levels are not indented further: the value must have room.
const DEEPEST = 14;
const INDENT = 12;

export function JsonRow(props: Props) {
  const { id, row, isAtCursor, isChosen, isMarked, isStale, onClick } = props;
  const classes = ["json-row", `row-${row.kind}`];
  if (isAtCursor) classes.push("cursor");
  if (isChosen) classes.push("chosen");
  if (isMarked) classes.push("marked");
  if (isStale) classes.push("stale");
  const isValue = row.kind === "value";
  return (
    <div
      id={id}
      class={classes.join(" ")}
      role="treeitem"
      aria-level={row.depth + 1}
      aria-expanded={isValue && row.canOpen ? row.isOpen : undefined}
      aria-selected={isChosen}
      aria-posinset={isValue ? row.place : undefined}
      aria-setsize={isValue ? row.siblings : undefined}
      data-pointer={isValue ? row.pointer : undefined}
      style={{ paddingLeft: `${4 + Math.min(row.depth, DEEPEST) * INDENT}px` }}
      onClick={row.kind === "text" ? undefined : onClick}
    >
      {isValue ? <Value {...props} row={row} /> : <Other {...props} row={row} />}
    </div>
  );
}

function Value({ row, name, isMarked, onToggle }: Props & { row: ValueRow }) {
  function toggled(event: MouseEvent): void {
    event.stopPropagation();
    onToggle();
  }
  return (
    <>
      <span class="twisty" aria-hidden="true" onClick={row.canOpen ? toggled : undefined}>
        {row.canOpen ? (row.isOpen ? "▾" : "▸") : ""}
      </span>
      {row.depth > DEEPEST && <span class="depth">{row.depth}</span>}
      <span class="key">
        <Text value={short(name ?? row.name)} />
      </span>
      <JsonValue value={row.value} type={row.type} total={row.total} preview={row.preview} />
      {isMarked && (
        <span class="flag" title="This event changed it">
          ● changed
        </span>
      )}
    </>
  );
}

function Other({ row, onMore }: Props & { row: OtherRow }) {
  if (row.kind === "loading") return <span class="skeleton" aria-label="loading" />;
  if (row.kind === "problem") {
    return (
      <span class="failed">
        ✕ <Text value={row.text} /> Enter or click: try again.
      </span>
    );
  }
  if (row.kind !== "text") return <span class="link">{row.kind === "before" ? "▴" : "▾"} {row.text}</span>;
  const { start, total, text } = row.slice!;
  const end = start + [...text].length;
  return (
    <div class="long">
      {start > 0 && <button onClick={() => onMore("before")}>{number(start)} characters before</button>}
      <Text key={start} value={text} lines />
      {end < total && <button onClick={() => onMore("after")}>{number(total - end)} more of {number(total)} characters</button>}
    </div>
  );
}

function short(name: string): string {
  return name.length > 80 ? `${name.slice(0, 79)}…` : name;
}
