/** What the screen of doubts knows: open calls of the runs with a status, as they are now. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { ask, client, type Schemas } from "../core/api";
import { cutsOf } from "../core/cuts";
import { follow, lastPosition, type Connection, type Follower, type Streamed } from "../core/live";
import { loader, type Loader } from "../core/loading";
import { asCall, question, type Call } from "../parts/doubt/call";
import { callsNow, isBegun } from "../parts/doubt/decision";

export const STATUSES = ["waiting", "running", "failed", "parked"] as const;
export type Status = (typeof STATUSES)[number];

export interface Doubt {
  run: string;
  call: Call;
}

export interface DoubtPage {
  doubts: Doubt[];
  damaged: Record<string, string>;
  /** The run after which the next page begins; "" if there is none. */
  next: string;
  /** Open calls that are not listed: a run has too many of them. */
  left: number;
}

/** Runs of a page: each card has some dozen nodes. */
const RUNS = 20;
// Changes are gathered for so long before the list is loaded again.
const GATHER = 400;
const CHANGES = /^(tool_call\.|approval\.|run\.)/;

export class DoubtsModel {
  readonly page: Loader<DoubtPage>;
  readonly connection = signal<Connection>("connecting");
  /** The last runs of the pages before this one. */
  readonly before = signal<readonly string[]>([]);
  private follower: Follower | null = null;
  private isClosed = false;
  private timer = 0;
  /** What is listed, and of which key. */
  private listed: { key: string; doubts: readonly Doubt[] } = { key: "", doubts: [] };

  constructor(status: ReadonlySignal<Status>) {
    this.page = loader(
      () => ({ status: status.value, before: this.before.value.at(-1) ?? "" }),
      async (key, abort) => {
        const mine = JSON.stringify(key);
        const page = await loadPage(key.status, key.before, abort);
        const doubts = mine === this.listed.key ? await withBegun(this.listed.doubts, page.doubts, abort) : page.doubts;
        this.listed = { key: mine, doubts };
        return { ...page, doubts };
      },
    );
    void this.begin().catch(() => {
      this.connection.value = "lost";
    });
  }

  next(): void {
    const { next } = this.page.loaded.peek().value ?? {};
    if (next) this.before.value = [...this.before.peek(), next];
  }

  previous(): void {
    this.before.value = this.before.peek().slice(0, -1);
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.follower?.close();
    this.page.close();
  }

  private async begin(): Promise<void> {
    const position = await lastPosition();
    if (this.isClosed) return;
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
    if (this.timer || !records.some((record) => CHANGES.test(record.type))) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.page.again();
    }, GATHER);
  }
}

async function loadPage(status: Status, before: string, abort: AbortSignal): Promise<DoubtPage> {
  let limit = RUNS;
  for (;;) {
    const query = { status, limit, cut: true, ...(before && { before }) };
    const answer = client.GET("/v1/doubts", { params: { query }, signal: abort, cache: "no-store" });
    const page = pageOf(await ask(answer));
    // Calls that do not fit into one answer are on pages of fewer runs, down to one.
    if (page.left === 0 || limit === 1) return page;
    limit = Math.max(1, Math.floor(limit / 4));
  }
}

/** A run waits no longer once one of its calls is decided: if that was begun here, its open calls stay where they are. */
async function withBegun(listed: readonly Doubt[], found: readonly Doubt[], abort: AbortSignal): Promise<Doubt[]> {
  const doubts = [...found];
  const there = new Set(found.map(({ run }) => run));
  const gone = new Set(listed.map(({ run }) => run).filter((run) => !there.has(run) && isBegun(run)));
  for (const run of gone) {
    const numbers = listed.filter((doubt) => doubt.run === run).map(({ call }) => call.number);
    const first = Math.min(...numbers);
    const calls = await callsNow(run, first, Math.max(...numbers) - first + 1, abort);
    const open = calls.filter((call) => numbers.includes(call.number) && question(call) !== "none");
    const place = listed.findIndex((doubt) => doubt.run === run);
    doubts.splice(place, 0, ...open.map((call) => ({ run, call })));
  }
  return doubts;
}

function pageOf(found: Schemas["Doubts"]): DoubtPage {
  const cuts = cutsOf(found);
  const doubts = found.doubts
    .map((doubt, place) => ({
      run: doubt.run_id,
      call: asCall(doubt.call, doubt.version, cuts, `/doubts/${place}/call`),
    }))
    .filter(({ call }) => call.number > 0);
  const total = cuts.get("/doubts")?.total ?? found.doubts.length;
  // What waits for a person first; a call that runs by itself is not a question.
  const sorted = doubts.toSorted((a, b) => Number(question(a.call) === "none") - Number(question(b.call) === "none"));
  const next = found.next ? (new URL(found.next, location.origin).searchParams.get("before") ?? "") : "";
  return { doubts: sorted, damaged: found.damaged ?? {}, next, left: total - doubts.length };
}
