/** Turns as the page shows them: each call with its result and its state, and what the event added. */
import type { Changes, Window } from "../model";
import { cutsOf, type Cuts } from "../../core/cuts";
import { asCall, type Call } from "../../parts/doubt/call";

/** A block of a turn; fields may be missing where an answer was shortened. */
export interface Block {
  kind?: "text" | "media" | "tool_use" | "tool_result";
  text?: string;
  call_id?: string;
  name?: string;
  arguments?: string;
  content?: string;
  is_error?: boolean;
  modality?: string;
  url?: string | null;
  blob?: string | null;
  mime?: string | null;
  prompt_hint?: string | null;
}

interface Turn {
  role?: "user" | "assistant";
  blocks?: Block[];
  synthetic?: boolean;
}

/** A block, and where it is: pointers into the state, and how long a text in it is in all. */
export interface Placed {
  block: Block;
  pointer: string;
  place: number;
  isNew: boolean;
  total: (field: string) => number | undefined;
}

export interface Part extends Placed {
  /** Of a call: its result, if it is here, and its state, if that is known. */
  result?: Placed;
  call?: Call;
}

export interface ShownTurn {
  /** Its number in the conversation, from 0. */
  place: number;
  role: "user" | "assistant";
  isSynthetic: boolean;
  isNew: boolean;
  parts: Part[];
  /** Blocks that are left out: there are more in the state. */
  left: number;
}

/** What an event added or changed in conversation and calls. */
export interface Marks {
  version: number;
  turns: ReadonlyMap<number, ReadonlySet<number> | "all">;
  calls: ReadonlySet<number>;
  isSystemNew: boolean;
  isAnother: boolean;
  superseded: readonly string[];
}

const NOTHING: Marks = { version: 0, turns: new Map(), calls: new Set(), isSystemNew: false, isAnother: false, superseded: [] };

export function marksOf(changes: Changes | undefined): Marks {
  if (!changes) return NOTHING;
  const turns = new Map<number, Set<number> | "all">();
  const calls = new Set<number>();
  const superseded: string[] = [];
  let isSystemNew = false;
  let isAnother = false;
  for (const { op, path, value, was } of changes.changes) {
    const [, view, name, third, fourth, fifth] = path.split("/");
    if (view === "tools" && name !== undefined && op !== "remove") calls.add(Number(name));
    if (view !== "history") continue;
    if (name === "system") isSystemNew = value !== "";
    if (name === "evaluation_id") isAnother = was !== undefined && was !== "";
    if (name === "superseded") superseded.push(String(value));
    if (name !== "turns" || third === undefined || op === "remove") continue;
    const turn = Number(third);
    const known = turns.get(turn);
    if (fourth !== "blocks" || fifth === undefined) turns.set(turn, "all");
    else if (known === undefined) turns.set(turn, new Set([Number(fifth)]));
    else if (known !== "all") known.add(Number(fifth));
  }
  if (superseded.length > 0) isAnother = false; // there is none until the next one begins
  return { version: changes.version, turns, calls, isSystemNew, isAnother, superseded };
}

/** Blocks of a turn that are shown at once. */
export const BLOCKS = 20;

/** The turns of a window, with calls of these tools; results stand in their calls. */
export function shownTurns(window: Window, calls: readonly Call[], marks: Marks, anchor: Anchor): ShownTurn[] {
  const cuts = cutsOf(window);
  const turns = (window.items as (Turn | null)[]).map((turn, place) => placed(window, turn ?? {}, place, cuts, marks));
  for (const [place, turn] of turns.entries()) pair(turn, turns[place + 1]);
  attach(turns, calls, anchor);
  return turns.filter((turn) => turn.parts.length > 0 || turn.left > 0);
}

function placed(window: Window, turn: Turn, item: number, cuts: Cuts, marks: Marks): ShownTurn {
  const place = window.start + item;
  const fresh = window.version === marks.version ? marks.turns.get(place) : undefined;
  const blocks = turn.blocks ?? [];
  const total = cuts.get(`/items/${item}/blocks`)?.total ?? cuts.get(`/items/${item}`)?.total ?? blocks.length;
  const parts = blocks.slice(0, 2 * BLOCKS).map((block, at) => ({
    block: block ?? {},
    pointer: `/history/turns/${place}/blocks/${at}`,
    place: at,
    isNew: fresh === "all" || fresh?.has(at) === true,
    total: (field: string) => cuts.get(`/items/${item}/blocks/${at}/${field}`)?.total,
  }));
  return {
    place,
    role: turn.role ?? "user",
    isSynthetic: turn.synthetic === true,
    isNew: fresh === "all",
    parts,
    left: Math.max(0, total - parts.length),
  };
}

/** Move the results of the next turn into the calls of this one. */
function pair(turn: ShownTurn, next: ShownTurn | undefined): void {
  if (!next) return;
  const results = new Map(next.parts.filter(({ block }) => block.kind === "tool_result").map((one) => [one.block.call_id, one]));
  for (const part of turn.parts) {
    const result = part.block.kind === "tool_use" ? results.get(part.block.call_id) : undefined;
    if (!result) continue;
    part.result = result;
    results.delete(part.block.call_id);
    next.parts = next.parts.filter((one) => one !== result);
  }
}

/**
 * Which calls the turns of a window may have, by their numbers: all up to `until`, matched from the
 * last one back, or all from `since` on, matched from the first one on; null if that is not known.
 */
export type Anchor = { until: number } | { since: number } | null;

/** Give each call its state. An id may come again in a later turn: both are in the order in which they were asked for. */
function attach(turns: ShownTurn[], calls: readonly Call[], anchor: Anchor): void {
  if (!anchor) return;
  const parts = turns.flatMap((turn) => turn.parts).filter(({ block }) => block.kind === "tool_use");
  const isBack = "until" in anchor;
  const left = calls.filter((call) => !call.superseded && (isBack ? call.number <= anchor.until : call.number >= anchor.since));
  const edge = isBack ? anchor.until : anchor.since;
  if (edge !== Infinity && !calls.some((call) => call.number === edge)) return; // not loaded yet
  if (isBack) {
    parts.reverse();
    left.reverse();
  }
  let next = 0;
  for (const part of parts) {
    const found = left.findIndex((call, place) => place >= next && call.call_id === part.block.call_id);
    if (found < 0) continue;
    part.call = left[found]!;
    next = found + 1;
  }
}

/** The calls of a window of tools, in order. */
export function callsOf(window: Window | undefined): Call[] {
  if (!window) return [];
  const cuts = cutsOf(window);
  return window.items.map((item, place) => asCall(item, window.version, cuts, `/items/${place}`));
}

/** As many turns as fit into the pane's budget of blocks, from the end or from the start. */
export function within(turns: ShownTurn[], budget: number, isForward: boolean): ShownTurn[] {
  const ordered = isForward ? turns : [...turns].reverse();
  const fits: ShownTurn[] = [];
  let used = 0;
  for (const turn of ordered) {
    used += Math.min(turn.parts.reduce((sum, part) => sum + (part.block.kind === "tool_use" ? 2 : 1), 0), BLOCKS);
    if (fits.length > 0 && used > budget) break;
    fits.push(turn);
  }
  return isForward ? fits : fits.reverse();
}
