/** What the screen of a run knows: its events, the version that is looked at, and the state there. */
import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { address, jump, step } from "../core/address";
import { ask, client, Problem, type Schemas } from "../core/api";
import { kindOfType } from "../core/kinds";
import { follow, type Connection, type Follower, type Streamed } from "../core/live";
import { loader, partOf, type Loader } from "../core/loading";
import { EventPages } from "./events";

export type RunInfo = Schemas["RunInfo"];
export type Window = Schemas["ViewWindow"];
export type Changes = Schemas["Changes"];

/** How many turns and calls before the end of a state are loaded with it. */
export const RECENT = 40;

export class RunModel {
  readonly info = signal<RunInfo | null>(null);
  readonly problem = signal<Problem | null>(null);
  /** One character an event. */
  readonly shape = signal("");
  readonly head = signal(0);
  readonly connection = signal<Connection>("connecting");
  /** The version that is looked at; the end while the address names none. */
  readonly at: ReadonlySignal<number>;
  readonly isFollowing: ReadonlySignal<boolean>;
  readonly events: EventPages;
  /** Turns of the conversation at that version: the last ones. */
  readonly turns: Loader<Window>;
  /** Tool calls at that version: the last ones. */
  readonly tools: Loader<Window>;
  /** What the event changed; loaded for the tab that shows it, and to mark what is new. */
  readonly changes: Loader<Changes>;
  /** The value that was chosen last, as a JSON Pointer into the state; "" for none. */
  readonly chosen = signal("");
  /** Versions that are marked on the strip, by what marks them: hits of a search, a pinned value. */
  readonly marks = signal<Record<string, readonly number[]>>({});
  /** Versions whose record was changed, and what is wrong with it: known after verifying. */
  readonly damaged = signal<ReadonlyMap<number, string>>(new Map());
  private follower: Follower | null = null;
  private readonly stops: (() => void)[] = [];

  constructor(readonly run: string) {
    this.events = new EventPages(run);
    this.isFollowing = computed(() => address.value.at === null);
    this.at = computed(() => Math.min(address.value.at ?? this.head.value, this.head.value));
    const moment = () => (this.head.value === 0 ? null : { at: this.at.value });
    const path = { run };
    const conversation = loader(moment, ({ at }, abort) => {
      const query = { at, from: -RECENT, limit: RECENT, cut: true };
      return ask(client.GET("/v1/runs/{run}/conversation", { params: { path, query }, signal: abort }));
    });
    this.turns = partOf(conversation, (both) => both.turns);
    this.tools = partOf(conversation, (both) => both.tools);
    this.changes = loader(moment, ({ at }, abort) =>
      ask(client.GET("/v1/runs/{run}/changes", { params: { path, query: { at, cut: true } }, signal: abort })),
    );
    void this.open();
  }

  /** Look at another version by a step of one event: Back does not stop there. */
  step(by: number): void {
    this.goTo(this.at.peek() + by, step);
  }

  /** Look at a version by a jump: Back comes back from it. */
  jumpTo(version: number): void {
    this.goTo(version, jump);
  }

  /** Go to the end, and follow it. */
  follow(): void {
    jump({ at: null });
  }

  /** Stay at this version while events arrive. */
  pause(): void {
    if (this.isFollowing.peek()) this.step(0);
  }

  /** Load the run's entry and its shape again: after a decision, an import, an append of ours. */
  async refresh(): Promise<void> {
    await this.load();
  }

  close(): void {
    this.follower?.close();
    this.events.close();
    for (const one of [this.turns, this.tools, this.changes]) one.close();
    for (const stop of this.stops) stop();
  }

  private goTo(version: number, by: typeof jump): void {
    const head = this.head.peek();
    if (head > 0) by({ at: Math.max(1, Math.min(version, head)) });
  }

  private async open(): Promise<void> {
    await this.load();
    if (this.problem.peek()) return;
    // The stream begins after the last event that is known: its position is in the last page.
    const stop = effect(() => {
      void this.events.changed.value;
      const head = this.head.value;
      if (this.follower || head === 0) return;
      const last = this.events.get(head);
      if (last) this.begin(last.position);
      else this.events.need(head);
    });
    this.stops.push(stop);
  }

  private begin(position: number): void {
    this.follower = follow(
      `/v1/runs/${this.run}/stream`,
      position,
      (records) => this.grow(records),
      (state) => {
        this.connection.value = state;
      },
    );
  }

  private grow(records: Streamed[]): void {
    const known = this.shape.peek();
    const fresh = records.filter((record) => record.version > known.length);
    if (fresh.length === 0) return;
    this.shape.value = known + fresh.map((record) => kindOfType(record.type).character).join("");
    this.head.value = fresh.at(-1)!.version;
    if (fresh.some((record) => record.type.startsWith("run."))) void this.loadInfo();
  }

  private async load(): Promise<void> {
    try {
      await this.loadInfo();
      const found = await ask(client.GET("/v1/runs/{run}/shape", { params: { path: { run: this.run } } }));
      if (found.shape.length >= this.shape.peek().length) this.shape.value = found.shape;
      this.head.value = Math.max(this.head.peek(), found.version);
      this.problem.value = null;
    } catch (error) {
      this.problem.value = error as Problem;
    }
  }

  private async loadInfo(): Promise<void> {
    const found = await ask(client.GET("/v1/runs/{run}", { params: { path: { run: this.run } } }));
    this.info.value = found as RunInfo;
  }
}

export const RunContext = createContext<RunModel | null>(null);

/** The model of the run whose screen this is in. */
export function useRun(): RunModel {
  return useContext(RunContext)!;
}
