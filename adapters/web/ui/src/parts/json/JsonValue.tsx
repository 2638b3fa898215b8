/** A JSON value on one line: texts in quotes, words and figures without, lists and objects by their size. */
import { number } from "../../core/format";
import { digitsOf } from "../../core/json";
import { Text } from "../Text";
import type { ValueRow } from "./tree";
import { isContainer } from "./values";

const SHOWN = 160;

interface Props {
  value: unknown;
  type?: ValueRow["type"];
  total?: number;
  /** The whole of a small list or object. */
  preview?: string;
}

export function JsonValue({ value, type = typeOf(value), total = sizeOf(value), preview = "" }: Props) {
  if (preview) {
    return (
      <span class="json-value type-preview">
        <Text value={preview} />
      </span>
    );
  }
  if (type === "list") return <span class="json-value type-list" title="a list">[{number(total)}]</span>;
  if (type === "object") return <span class="json-value type-object" title="an object">{`{${number(total)}}`}</span>;
  if (type === "deep") return <span class="json-value type-object" title="a list or an object">…{number(total)}</span>;
  if (type !== "text") return <span class={`json-value type-${type}`}>{digitsOf(value) || String(value ?? null)}</span>;
  const text = typeof value === "string" ? value : "";
  const isLong = text.length > SHOWN || total > text.length;
  return (
    <span class="json-value type-text">
      "<Text value={text.length > SHOWN ? text.slice(0, SHOWN) : text} />
      {isLong ? "…" : ""}"
    </span>
  );
}

export function typeOf(value: unknown): ValueRow["type"] {
  if (typeof value === "string") return "text";
  if (isContainer(value)) return Array.isArray(value) ? "list" : "object";
  return typeof value === "number" || digitsOf(value) ? "number" : typeof value === "boolean" ? "boolean" : "null";
}

function sizeOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  return isContainer(value) ? Object.keys(value).length : 0;
}
