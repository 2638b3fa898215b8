/** What a JSON tree shows: which nodes are open, the slices that are here, and the rows that these make. */
import { signal } from "@preact/signals";
import { Problem } from "../../core/api";
import { count } from "../../core/format";
import { digitsOf } from "../../core/json";
import { isWithin } from "./pointer";
import { entriesOf, isContainer, NO_CUTS, preview, sliceOf, type Cut, type Cuts, type Slice, type ValueWindow } from "./values";

export type Load = (pointer: string, from: number, limit: number, abort: AbortSignal) => Promise<ValueWindow>;

/** Entries that are loaded at once, and that one node has here at most. */
export const STEP = 100;
const MOST = 200;
const TEXT_STEP = 20_000;
/** Nodes whose slices are kept. */
const KEPT = 60;
/** A text that is longer can be opened, to be read whole. */
const LONG = 60;

export interface ValueRow {
  kind: "value";
  /** The window that the row is from. */
  from: string;
  pointer: string;
  name: string;
  depth: number;
  value: unknown;
  type: "text" | "list" | "object" | "number" | "boolean" | "null" | "deep";
  total: number;
  /** The whole of a small list or object. */
  preview: string;
  canOpen: boolean;
  isOpen: boolean;
  place: number;
  siblings: number;
}

export interface OtherRow {
  kind: "text" | "before" | "after" | "loading" | "problem" | "empty";
  from: string;
  pointer: string;
  depth: number;
  text: string;
  slice?: Slice;
}

export type Row = ValueRow | OtherRow;

interface Held {
  slice: Slice | null;
  problem: Problem | null;
  isStale: boolean;
}

export class Tree {
  /** Rises when the rows may be others. */
  readonly changed = signal(0);
  /** The row that keys act on. */
  readonly cursor = signal("");
  readonly open: Set<string>;
  /** How many windows may be loaded without being asked for: a step through a run loads one. */
  allowed = Infinity;
  private root: unknown = undefined;
  private rootCuts: Cuts = NO_CUTS;
  private readonly held = new Map<string, Held>();
  private readonly underWay = new Map<string, AbortController>();

  /** `load` gives windows of what is not here; `top` is the pointer of the outermost value. */
  constructor(
    private readonly load: Load,
    readonly top = "",
    isOpen = true,
  ) {
    this.open = new Set(isOpen ? [top] : []);
    this.cursor.value = top;
  }

  /** Show a value that is here, but for what was cut. Windows of another version are forgotten. */
  show(value: unknown, cuts: Cuts): void {
    this.root = value;
    this.rootCuts = cuts;
    this.abort();
    this.held.clear();
    this.tell();
  }

  toggle(pointer: string): void {
    if (!this.open.delete(pointer)) this.open.add(pointer);
    this.allowed += 1;
    this.tell();
  }

  /** All windows are of another version now: they are shown until they are loaded again. */
  outdate(isTouched: (pointer: string) => boolean = () => true): void {
    for (const [pointer, one] of this.held) {
      if (one.problem) this.held.delete(pointer);
      else if (isTouched(pointer)) one.isStale = true;
    }
    this.abort();
    this.tell();
  }

  isStale(pointer: string): boolean {
    return this.held.get(pointer)?.isStale ?? false;
  }

  /** Load the first window that is missing or outdated among these: one at a time. */
  loadFirst(pointers: Iterable<string>): void {
    if (this.allowed < 1 || this.underWay.size > 0) return;
    for (const pointer of pointers) {
      const one = this.held.get(pointer);
      const isHere = one ? one.problem !== null || !one.isStale : pointer === this.top && this.root !== undefined;
      if (isHere) continue;
      const { from, limit } = pointer === this.top ? { from: 0, limit: STEP } : rangeOf(one?.slice ?? null);
      this.allowed -= 1;
      void this.fetch(pointer, from, limit, (slice) => slice);
      return;
    }
  }

  /** From now on windows are loaded as they come into sight. */
  allow(): void {
    this.allowed = Infinity;
    this.tell();
  }

  /** Load a window again whose loading failed. */
  again(pointer: string): void {
    this.held.delete(pointer);
    this.allowed += 1;
    this.tell();
  }

  /** More entries of a node, after or before those that are here. */
  more(pointer: string, direction: "before" | "after", inline: Slice): void {
    const known = this.held.get(pointer)?.slice ?? inline;
    const isText = known.kind === "text";
    const step = isText ? TEXT_STEP : STEP;
    const length = isText ? [...known.text].length : known.entries.length;
    // What is here of a cut text is its beginning, which the first slice has again.
    const after = isText && length < TEXT_STEP && known.start === 0 ? 0 : known.start + length;
    const from = direction === "after" ? after : Math.max(0, known.start - step);
    const limit = direction === "after" ? step : known.start - from;
    void this.fetch(pointer, from, Math.min(limit, STEP), (slice) =>
      isText ? slice : joined(known, slice, direction),
    );
  }

  close(): void {
    this.abort();
  }

  /** The rows from the top down. */
  rows(): Row[] {
    const rows: Row[] = [];
    const held = this.held.get(this.top);
    if (this.root === undefined && !held?.slice) {
      rows.push(waiting(this.top, this.top, 0, held?.problem ?? null));
      return rows;
    }
    this.add(rows, this.top, "", this.root, this.rootCuts, 0, this.top, 1, 1);
    return rows;
  }

  private add(
    rows: Row[],
    pointer: string,
    name: string,
    value: unknown,
    cuts: Cuts,
    depth: number,
    from: string,
    place: number,
    siblings: number,
  ): void {
    const held = this.held.get(pointer);
    const slice = held?.slice ?? inlineSlice(value, pointer, cuts);
    const shown = held?.slice ? shownOf(held.slice, value) : value;
    const isDeep = cuts.get(pointer)?.kind === "depth" && !held?.slice;
    const type: ValueRow["type"] = isDeep ? "deep" : slice.kind;
    const canOpen = canBeOpened(type, slice);
    const isOpen = canOpen && this.open.has(pointer);
    const text = held || isOpen ? "" : preview(value, pointer, cuts);
    const row = { from, pointer, name, depth, value: shown, type, total: slice.total, preview: text, canOpen, isOpen };
    rows.push({ kind: "value", ...row, place, siblings });
    if (!isOpen) return;
    // What is below is from this node's own window, if it has one.
    const source = held ? pointer : from;
    if (held?.problem) {
      rows.push(waiting(pointer, pointer, depth + 1, held.problem));
      return;
    }
    if (slice.kind === "text") {
      rows.push({ kind: "text", from: source, pointer, depth: depth + 1, text: slice.text, slice });
      return;
    }
    if (slice.entries.length === 0 && slice.total > 0) {
      rows.push(waiting(pointer, pointer, depth + 1, null));
      return;
    }
    this.addEntries(rows, pointer, slice, depth + 1, source);
  }

  private addEntries(rows: Row[], pointer: string, slice: Slice, depth: number, from: string): void {
    const after = slice.total - slice.start - slice.entries.length;
    if (slice.start > 0) {
      const text = `${count(slice.start, "entry", "entries")} before`;
      rows.push({ kind: "before", from, pointer, depth, text, slice });
    }
    slice.entries.forEach((entry, place) => {
      const at = slice.start + place + 1;
      this.add(rows, entry.pointer, entry.name, entry.value, slice.cuts, depth, from, at, slice.total);
    });
    if (after > 0) {
      rows.push({ kind: "after", from, pointer, depth, text: `${count(after, "entry", "entries")} more`, slice });
    }
  }

  private async fetch(pointer: string, from: number, limit: number, made: (slice: Slice) => Slice): Promise<void> {
    this.underWay.get(pointer)?.abort();
    const abort = new AbortController();
    this.underWay.set(pointer, abort);
    try {
      let slice = sliceOf(await this.load(pointer, from, limit, abort.signal), pointer);
      // The list is shorter now than what was looked at: its end.
      if (slice.entries.length === 0 && slice.start > 0 && slice.total > 0 && slice.kind !== "text") {
        slice = sliceOf(await this.load(pointer, -STEP, STEP, abort.signal), pointer);
      }
      this.keep(pointer, { slice: made(slice), problem: null, isStale: false });
    } catch (error) {
      if (abort.signal.aborted) return;
      const problem = error instanceof Problem ? error : new Problem(0, "page", "The page failed", String(error));
      this.keep(pointer, { slice: null, problem, isStale: false });
    } finally {
      if (this.underWay.get(pointer) === abort) this.underWay.delete(pointer);
      this.tell();
    }
  }

  private keep(pointer: string, one: Held): void {
    this.held.delete(pointer);
    this.held.set(pointer, one);
    for (const old of this.held.keys()) {
      if (this.held.size <= KEPT) break;
      if (!isWithin(pointer, old)) this.held.delete(old);
    }
  }

  private abort(): void {
    for (const one of this.underWay.values()) one.abort();
    this.underWay.clear();
  }

  private tell(): void {
    this.changed.value = this.changed.peek() + 1;
  }
}

function rangeOf(slice: Slice | null): { from: number; limit: number } {
  // A list that is not here at all is shown from its end: that is what the version added.
  if (slice === null) return { from: -STEP, limit: STEP };
  const length = Math.max(STEP, slice.entries.length);
  const isAtEnd = slice.start + slice.entries.length >= slice.total;
  return { from: isAtEnd && slice.kind === "list" ? -length : slice.start, limit: length };
}

function joined(known: Slice, more: Slice, direction: "before" | "after"): Slice {
  const isAfter = direction === "after";
  const all = isAfter ? [...known.entries, ...more.entries] : [...more.entries, ...known.entries];
  const entries = isAfter ? all.slice(-MOST) : all.slice(0, MOST);
  const start = isAfter ? known.start + all.length - entries.length : more.start;
  return { ...more, start, entries, cuts: new Map([...known.cuts, ...more.cuts]) };
}

function inlineSlice(value: unknown, pointer: string, cuts: Cuts): Slice {
  const cut: Cut | undefined = cuts.get(pointer);
  const nothing = { start: 0, entries: [], text: "", value, cuts };
  if (cut?.kind === "depth") return { ...nothing, kind: "object", total: cut.total };
  if (typeof value === "string") return { ...nothing, kind: "text", total: cut?.total ?? value.length, text: value };
  if (isContainer(value)) {
    const entries = entriesOf(value, pointer);
    return { ...nothing, kind: Array.isArray(value) ? "list" : "object", total: cut?.total ?? entries.length, entries };
  }
  const kind = typeof value === "number" || digitsOf(value) ? "number" : typeof value === "boolean" ? "boolean" : "null";
  return { ...nothing, kind, total: 0 };
}

function shownOf(slice: Slice, value: unknown): unknown {
  if (slice.kind === "text") return slice.start === 0 ? slice.text : value;
  return slice.kind === "list" || slice.kind === "object" ? undefined : slice.value;
}

function canBeOpened(type: ValueRow["type"], slice: Slice): boolean {
  if (type === "text") return slice.text.length > LONG || slice.text.includes("\n") || slice.total > slice.text.length;
  return (type === "list" || type === "object" || type === "deep") && slice.total > 0;
}

function waiting(pointer: string, from: string, depth: number, problem: Problem | null): OtherRow {
  const text = problem ? `${problem.title}. ${problem.message}` : "loading";
  return { kind: problem ? "problem" : "loading", from, pointer, depth, text };
}
