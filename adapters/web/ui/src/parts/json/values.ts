/** JSON values that may be shortened, and windows of long ones. */
import type { Schemas } from "../../core/api";
import { digitsOf } from "../../core/json";
import { below, isWithin, partsOf } from "./pointer";

/** Something that was shortened, and how long it is in full. */
export type Cut = Schemas["Cut"];
/** A slice of a value; a field is its key and its value. */
export type ValueWindow = Omit<Schemas["ValueWindow"], "fields"> & { fields?: unknown[][] };

/** What was shortened in a value, by pointers that are absolute in its tree. */
export type Cuts = ReadonlyMap<string, Cut>;

export interface Entry {
  name: string;
  pointer: string;
  value: unknown;
}

/** A part of a list, object or text that is here. */
export interface Slice {
  kind: ValueWindow["kind"];
  total: number;
  start: number;
  entries: Entry[];
  text: string;
  value: unknown;
  cuts: Cuts;
}

const PREVIEW = 60;
const PREVIEWED = 8;

export const NO_CUTS: Cuts = new Map();

export function isContainer(value: unknown): value is object {
  return typeof value === "object" && value !== null && !digitsOf(value);
}

/** The entries of a list or an object. Keys are data: no object is ever indexed by one. */
export function entriesOf(value: unknown, pointer: string): Entry[] {
  if (Array.isArray(value)) {
    return value.map((item, place) => named(pointer, String(place), item));
  }
  if (!isContainer(value)) return [];
  return Object.entries(value).map(([name, item]) => named(pointer, name, item));
}

/** The cuts of an answer's field, as pointers of the tree: `/changes/3/value/x` is at `root` + `/x`. */
export function cutsBelow(cut: readonly Cut[] | undefined, field: string, root: string): Cuts {
  const found = new Map<string, Cut>();
  for (const one of cut ?? []) {
    if (one.pointer === field || one.pointer.startsWith(`${field}/`)) {
      found.set(root + one.pointer.slice(field.length), one);
    }
  }
  return found;
}

/** A window as a slice of the tree's value at its pointer. */
export function sliceOf(window: ValueWindow, pointer: string): Slice {
  const entries = window.items
    ? window.items.map((value, place) => named(pointer, String(window.start + place), value))
    : (window.fields ?? []).map(([name, value]) => named(pointer, String(name), value));
  return {
    kind: window.kind,
    total: window.total,
    start: window.start,
    entries,
    text: window.text ?? "",
    value: window.value,
    cuts: windowCuts(window, entries),
  };
}

function named(pointer: string, name: string, value: unknown): Entry {
  return { name, pointer: below(pointer, name), value };
}

function windowCuts(window: ValueWindow, entries: Entry[]): Cuts {
  const found = new Map<string, Cut>();
  for (const one of window.cut ?? []) {
    const [field, place, ...rest] = partsOf(one.pointer);
    const entry = place === undefined ? undefined : entries[Number(place)];
    if (!entry) continue;
    // A field is its key and its value: [key, value].
    const inner = field === "fields" ? rest.slice(1) : rest;
    found.set(inner.reduce<string>(below, entry.pointer), one);
  }
  return found;
}

/** A small list or object as one line of JSON; "" if it is large, or something in it was cut. */
export function preview(value: unknown, pointer: string, cuts: Cuts): string {
  if (!isContainer(value) || Object.keys(value).length > PREVIEWED) return "";
  for (const cut of cuts.keys()) if (isWithin(cut, pointer)) return "";
  let left = PREVIEW;
  // Large ones are given up before they are written out.
  const text = JSON.stringify(value, (_, item) => {
    left -= typeof item === "string" ? item.length + 2 : 2;
    return left < 0 ? null : item;
  });
  return left < 0 || text.length > PREVIEW ? "" : text;
}
