/** What the conversation shows: the last turns at the version, or a window of earlier ones. */
import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { ask, client } from "../../core/api";
import { loader, type Loader } from "../../core/loading";
import { isOver, type Call } from "../../parts/doubt/call";
import { learn } from "../../parts/doubt/facts";
import type { RunModel, Window } from "../model";
import { callsOf, marksOf, shownTurns, within, type Anchor, type Marks, type ShownTurn } from "./turns";

/** A window of earlier turns, and of the calls that are asked for in them. */
interface Range {
  at: number;
  from: number;
  limit: number;
  isForward: boolean;
  callsFrom: number;
  anchor: Anchor;
}

/** The pane's blocks at most: the page's nodes are bounded, however long the run is. */
const BUDGET = 30;
const STEP = 20;
const CALLS = 60;
const LAST = { until: Infinity };

export class ConversationPane {
  readonly range = signal<Range | null>(null);
  readonly marks: ReadonlySignal<Marks>;
  readonly window: ReadonlySignal<Window | undefined>;
  readonly calls: ReadonlySignal<Call[]>;
  readonly turns: ReadonlySignal<ShownTurn[]>;
  /** Calls that no turn here shows: steps that have not ended, and calls further up that the event changed. */
  readonly others: ReadonlySignal<Call[]>;
  readonly older: Loader<Window>;
  private readonly olderCalls: Loader<Window>;
  private readonly stop: () => void;

  constructor(readonly model: RunModel) {
    const path = { run: model.run };
    const wanted = computed(() => (this.range.value?.at === model.at.value ? this.range.value : null));
    this.older = loader(
      () => wanted.value,
      ({ at, from, limit }, abort) =>
        ask(client.GET("/v1/runs/{run}/messages", { params: { path, query: cut({ at, from, limit }) }, signal: abort })),
    );
    const recent = computed(() => callsOf(model.tools.loaded.value.value));
    const isOlder = computed(() => {
      const found = this.older.loaded.value.value;
      return wanted.value !== null && found !== undefined && found.version === wanted.value.at && found.start === wanted.value.from;
    });
    this.window = computed(() => (isOlder.value ? this.older.loaded.value.value : model.turns.loaded.value.value));
    this.marks = computed(() => marksOf(model.changes.loaded.value.value));
    const turnsWith = (calls: Call[]): ShownTurn[] => {
      if (!this.window.value) return [];
      const anchor = isOlder.value ? wanted.value!.anchor : LAST;
      const turns = shownTurns(this.window.value, calls, this.marks.value, anchor);
      return within(turns, BUDGET, isOlder.value && wanted.value!.isForward);
    };
    // More calls at once than are loaded with a version: those before them are loaded too.
    const lacking = computed(() => {
      const [first] = recent.value;
      // While one of the two is of the version before, calls may seem to be missing.
      if (model.turns.loaded.value.value?.version !== model.tools.loaded.value.value?.version) return null;
      const isLacking = turnsWith(recent.value).some(({ parts }) => parts.some((part) => part.block.kind === "tool_use" && !part.call));
      return isLacking && first && first.number > 1 ? { at: first.at, from: Math.max(0, first.number - 1 - CALLS) } : null;
    });
    this.olderCalls = loader<{ at: number; from: number }, Window>(
      () => {
        if (!wanted.value) return lacking.value;
        return wanted.value.anchor && { at: wanted.value.at, from: wanted.value.callsFrom };
      },
      ({ at, from }, abort) =>
        ask(client.GET("/v1/runs/{run}/tools", { params: { path, query: cut({ at, from, limit: CALLS }) }, signal: abort })),
    );
    this.calls = computed(() => {
      const first = recent.value[0]?.number ?? Infinity;
      const at = recent.value[0]?.at;
      const older = callsOf(this.olderCalls.loaded.value.value);
      return [...older.filter((call) => call.number < first && call.at === at), ...recent.value];
    });
    this.turns = computed(() => turnsWith(this.calls.value));
    this.others = computed(() => {
      const marks = this.marks.value;
      const isNow = marks.version === this.window.value?.version;
      const shown = new Set(this.turns.value.flatMap((turn) => turn.parts.map((part) => part.call?.number)));
      const open = this.calls.value.filter((call) => {
        const isStep = !call.asked_at && !call.evaluation_id;
        const isChanged = isNow && marks.calls.has(call.number - 1);
        return !shown.has(call.number) && ((isStep && !isOver(call)) || isChanged);
      });
      return open.slice(-10);
    });
    this.stop = effect(() => learn(model.run, this.calls.value, model.changes.loaded.value.value));
  }

  /** The place of the first turn that is shown. */
  get first(): number {
    return this.turns.value[0]?.place ?? 0;
  }

  /** The place after the last turn that is shown, with the results that stand in it. */
  get end(): number {
    const last = this.turns.value.at(-1);
    if (!last) return this.window.value?.total ?? 0;
    return last.place + (last.parts.some((part) => part.result) ? 2 : 1);
  }

  earlier(): void {
    // One turn that is shown now stays in sight.
    const end = this.first + 1;
    const from = Math.max(0, end - STEP);
    const turns = this.turns.peek();
    const until = numbersOf(turns.slice(0, 1)).at(-1) ?? (numbersOf(turns)[0] ?? this.after()) - 1;
    this.show(from, end - from, false, until);
  }

  later(): void {
    const total = this.window.value?.total ?? 0;
    const turns = this.turns.peek();
    const from = turns.at(-1)?.place ?? 0;
    const since = numbersOf(turns.slice(-1))[0] ?? (numbersOf(turns).at(-1) ?? this.after() - 1) + 1;
    if (from + STEP >= total) this.range.value = null;
    else this.show(from, STEP, true, since);
  }

  /** Show the turn at a place. Which of the run's calls are asked for there is not known. */
  goTo(place: number): void {
    this.range.value = { at: this.model.at.peek(), from: Math.max(0, place - 3), limit: STEP, isForward: true, callsFrom: 0, anchor: null };
  }

  toEnd(): void {
    this.range.value = null;
  }

  close(): void {
    this.stop();
    this.older.close();
    this.olderCalls.close();
  }

  /** The number after the last call that the turns here may have, where none of them has one. */
  private after(): number {
    const range = this.range.peek();
    const anchor = range ? range.anchor : LAST;
    const last = this.calls.peek().at(-1)?.number ?? 0;
    if (!anchor) return 0;
    return "until" in anchor ? Math.min(anchor.until, last) + 1 : anchor.since;
  }

  private show(from: number, limit: number, isForward: boolean, call: number): void {
    const anchor = isForward ? { since: call } : { until: call };
    const callsFrom = Math.max(0, isForward ? call - 1 : call - CALLS);
    this.range.value = { at: this.model.at.peek(), from, limit, isForward, callsFrom, anchor };
  }
}

/** The numbers of the calls in these turns. */
function numbersOf(turns: readonly ShownTurn[]): number[] {
  return turns.flatMap((turn) => turn.parts.flatMap((part) => part.call?.number ?? []));
}

function cut<T extends object>(query: T): T & { cut: boolean } {
  return { ...query, cut: true };
}
