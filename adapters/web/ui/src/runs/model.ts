/** What the list of runs knows: the runs of the filter, newest first, and how they change. */
import { effect, signal, type ReadonlySignal } from "@preact/signals";
import { ask, client, Problem, type Schemas } from "../core/api";
import { follow, lastPosition, type Connection, type Follower, type Streamed } from "../core/live";
import type { Filter } from "./filter";

export type RunInfo = Schemas["RunInfo"];
export type RunDetail = Schemas["RunDetail"];
export interface Row {
  info: RunInfo;
  detail: RunDetail | undefined;
  /** How deep it stands under the run that it was forked from. */
  depth: number;
}

const PAGE = 50;
const MOST = 2000;
// Changes are gathered for so long before the list is loaded again.
const GATHER = 400;

export class RunsModel {
  readonly rows = signal<Row[]>([]);
  readonly damaged = signal<Record<string, string>>({});
  readonly hasMore = signal(false);
  readonly isLoading = signal(true);
  readonly problem = signal<Problem | null>(null);
  readonly connection = signal<Connection>("connecting");
  /** Runs that came or grew since the list was shown; they are marked. */
  readonly fresh = signal<ReadonlySet<string>>(new Set());
  private readonly infos = new Map<string, RunInfo>();
  private readonly details = new Map<string, RunDetail>();
  private last = "";
  private abort = new AbortController();
  private follower: Follower | null = null;
  private isClosed = false;
  private changed = new Set<string>();
  private timer = 0;
  private readonly stop: () => void;

  constructor(private readonly filter: ReadonlySignal<Filter>) {
    this.stop = effect(() => {
      void this.filter.value;
      void this.reload();
    });
    void this.begin();
  }

  /** Whether the rows are still those of the filter before, or none. */
  get isOutdated(): boolean {
    return this.last === "";
  }

  async reload(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    this.infos.clear();
    this.last = "";
    await this.more();
  }

  /** Load the next page of older runs. */
  async more(): Promise<void> {
    const { signal: abort } = this.abort;
    this.isLoading.value = true;
    try {
      const page = await this.page(this.last, abort);
      this.take(page);
      this.last = page.runs.at(-1)?.run_id ?? this.last;
      this.hasMore.value = page.next !== undefined && page.next !== "" && this.infos.size < MOST;
      this.problem.value = null;
    } catch (error) {
      if (abort.aborted) return;
      this.problem.value = error as Problem;
    }
    this.isLoading.value = false;
    this.arrange();
  }

  close(): void {
    this.isClosed = true;
    this.stop();
    this.abort.abort();
    clearTimeout(this.timer);
    this.follower?.close();
  }

  private async page(before: string, abort?: AbortSignal): Promise<Schemas["RunPage"]> {
    const query = { ...this.filter.peek(), limit: PAGE, details: true, ...(before && { before }) };
    return (await ask(client.GET("/v1/runs", { params: { query }, signal: abort }))) as Schemas["RunPage"];
  }

  private take(page: Schemas["RunPage"]): void {
    for (const info of page.runs) this.infos.set(info.run_id, info);
    for (const [run, detail] of Object.entries(page.details ?? {})) this.details.set(run, detail);
    if (page.damaged) this.damaged.value = { ...this.damaged.peek(), ...page.damaged };
  }

  /** Newest first, and forks under the run that they come from. */
  private arrange(): void {
    const all = [...this.infos.values()].sort(newestFirst);
    const children = Map.groupBy(all, (info) => (info.parent && this.infos.has(info.parent) ? info.parent : ""));
    const rows: Row[] = [];
    const put = (info: RunInfo, depth: number): void => {
      rows.push({ info, detail: this.details.get(info.run_id), depth });
      for (const child of children.get(info.run_id) ?? []) put(child, depth + 1);
    };
    for (const info of children.get("") ?? []) put(info, 0);
    this.rows.value = rows;
  }

  private async begin(): Promise<void> {
    const position = await lastPosition().catch(() => null);
    if (position === null || this.isClosed) return;
    this.follower = follow(
      "/v1/stream",
      position,
      (records) => this.grew(records),
      (state) => {
        this.connection.value = state;
      },
    );
  }

  private grew(records: Streamed[]): void {
    for (const record of records) this.changed.add(record.run_id);
    if (this.timer) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      void this.refresh();
    }, GATHER);
  }

  /** Load the newest page again, which has what began; and the few older runs that have grown. */
  private async refresh(): Promise<void> {
    const changed = this.changed;
    this.changed = new Set();
    try {
      const page = await this.page("");
      this.take(page);
      const loaded = new Set(page.runs.map((info) => info.run_id));
      const older = [...changed].filter((run) => !loaded.has(run) && this.infos.has(run)).slice(0, 10);
      for (const run of older) {
        const found = await client.GET("/v1/runs/{run}", { params: { path: { run } } });
        if (found.data) this.infos.set(run, found.data as RunInfo);
      }
      this.fresh.value = changed;
    } catch (error) {
      if (!this.isClosed) this.problem.value = error as Problem;
    }
    if (!this.isClosed) this.arrange();
  }
}

function newestFirst(a: RunInfo, b: RunInfo): number {
  return a.started_at < b.started_at ? 1 : a.started_at > b.started_at ? -1 : a.run_id < b.run_id ? 1 : -1;
}
