/** A comparison of two runs: its rows in pages, the row that is looked at, and what differs there. */
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { address, jump, step } from "../core/address";
import { ask, client, Problem, type Schemas } from "../core/api";
import { loader, type Loader } from "../core/loading";
import { PAGE, Pages } from "../core/pages";
import { cutsBelow, type Cut } from "../parts/json/values";

type Slice = Omit<Schemas["RowSlice"], "after"> & { after: number[] };
export type Row = Schemas["Row"];
export type StateDifferences = Schemas["StateDifferences"];

/** A row, the last version of each run up to it, and what was shortened in its changes. */
export interface ComparedRow {
  row: Row;
  first: number;
  second: number;
  cut: Cut[];
}

/** What is known of the whole comparison. */
export interface Overview {
  total: number;
  shared: number;
  /** Places of the rows that differ, from 0; not all of them if it is not complete. */
  differences: readonly number[];
  isComplete: boolean;
}

export class CompareModel {
  readonly overview = signal<Overview | null>(null);
  readonly infos: Loader<Schemas["RunInfo"][]>;
  readonly rows: Pages<ComparedRow>;
  /** The place of the row that is looked at, from 0; the address has its number, from 1. */
  readonly at: ReadonlySignal<number>;
  readonly current: ReadonlySignal<ComparedRow | undefined>;
  /** What differs between the states after that row. */
  readonly state: Loader<StateDifferences>;
  /** A search for a difference beyond those that are listed is under way. */
  readonly isSearching = signal(false);
  private searching = new AbortController();

  constructor(
    readonly first: string,
    readonly second: string,
  ) {
    this.rows = new Pages((from, abort) => this.load(from, abort));
    this.at = computed(() => {
      const known = this.overview.value;
      const wanted = address.value.at === null ? (known?.differences[0] ?? 0) : address.value.at - 1;
      return Math.max(0, Math.min(wanted, (known?.total ?? 1) - 1));
    });
    this.current = computed(() => {
      void this.rows.changed.value;
      return this.rows.get(this.at.value);
    });
    const runs = [first, second];
    this.infos = loader(
      () => ({}),
      (_, signal) =>
        Promise.all(runs.map((run) => ask(client.GET("/v1/runs/{run}", { params: { path: { run } }, signal })))) as Promise<Schemas["RunInfo"][]>,
    );
    const versions = () => {
      const row = this.current.value;
      return row ? { a_at: row.first, b_at: row.second } : null;
    };
    this.state = loader(versions, (at, signal) =>
      ask(client.GET("/v1/compare/state", { params: { query: { a: first, b: second, ...at, cut: true } }, signal })),
    );
    this.begin();
  }

  /** Load what is looked at first: its answer has the overview too. */
  begin(): void {
    const place = Math.max(0, (address.peek().at ?? 1) - 1);
    this.rows.want(place, place, place + 1);
  }

  step(by: number): void {
    this.goTo(this.at.peek() + by, step);
  }

  jumpTo(place: number): void {
    this.goTo(place, jump);
  }

  toEnd(): void {
    this.jumpTo((this.overview.peek()?.total ?? 1) - 1);
  }

  /** Go to the next difference after the row, or to the one before it. */
  async toDifference(isForward: boolean): Promise<void> {
    const place = this.listed(isForward) ?? (await this.searched(isForward));
    if (place !== undefined) this.jumpTo(place);
  }

  close(): void {
    this.searching.abort();
    this.rows.close();
    this.infos.close();
    this.state.close();
  }

  private goTo(place: number, by: typeof jump): void {
    const total = this.overview.peek()?.total;
    if (total) by({ at: Math.max(0, Math.min(place, total - 1)) + 1 });
  }

  private listed(isForward: boolean): number | undefined {
    const at = this.at.peek();
    const known = this.overview.peek()?.differences ?? [];
    if (isForward) return known.find((place) => place > at);
    const isBeyond = !this.overview.peek()?.isComplete && at > (known.at(-1) ?? -1) + 1;
    return isBeyond ? undefined : known.findLast((place) => place < at);
  }

  /** Beyond the differences that are listed they are looked for page by page. */
  private async searched(isForward: boolean): Promise<number | undefined> {
    const known = this.overview.peek();
    if (!known || known.isComplete) return undefined;
    this.searching.abort();
    this.searching = new AbortController();
    const { signal: abort } = this.searching;
    this.isSearching.value = true;
    try {
      const at = this.at.peek();
      for (let from = at - (at % PAGE); from >= 0 && from < known.total; from += isForward ? PAGE : -PAGE) {
        const found = (await this.load(from, abort)).map((one, place) => (differs(one.row) ? from + place : -1));
        const place = isForward ? found.find((one) => one > at) : found.findLast((one) => one >= 0 && one < at);
        if (place !== undefined) return place;
      }
    } catch (error) {
      if (!abort.aborted) this.rows.problem.value = error as Problem;
    } finally {
      if (!abort.aborted) this.isSearching.value = false;
    }
    return undefined;
  }

  /** A page of rows. Where rows are large an answer has fewer, and the rest is asked for. */
  private async load(from: number, abort: AbortSignal): Promise<ComparedRow[]> {
    const found: ComparedRow[] = [];
    for (;;) {
      const query = { a: this.first, b: this.second, from: from + found.length, limit: PAGE - found.length, cut: true };
      const slice = await ask(client.GET("/v1/compare", { params: { query }, signal: abort }));
      this.overview.value = overviewOf(slice);
      found.push(...comparedRows(slice));
      if (slice.rows.length === 0 || found.length >= Math.min(PAGE, slice.total - from)) return found;
    }
  }
}

/** Whether the runs differ in this row: bookkeeping never makes them different. */
export function differs(row: Row): boolean {
  return row.kind !== "same" && !row.bookkeeping;
}

function overviewOf(slice: Slice): Overview {
  return { total: slice.total, shared: slice.shared, differences: slice.differences, isComplete: slice.complete };
}

function comparedRows(slice: Slice): ComparedRow[] {
  let [first = 0, second = 0] = slice.after;
  return slice.rows.map((row, place) => {
    first = row.first ?? first;
    second = row.second ?? second;
    const cut = [...cutsBelow(slice.cut, `/rows/${place}/changes`, "/changes")];
    return { row, first, second, cut: cut.map(([pointer, one]) => ({ ...one, pointer })) };
  });
}

export const CompareContext = createContext<CompareModel | null>(null);

/** The model of the comparison that this is in. */
export function useComparison(): CompareModel {
  return useContext(CompareContext)!;
}
