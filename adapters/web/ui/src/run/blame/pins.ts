/** A pinned value: the events that changed it, newest first, in pages. */
import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { address, step } from "../../core/address";
import { Problem } from "../../core/api";
import { loader, type Loader } from "../../core/loading";
import type { RunModel } from "../model";
import { rested } from "../details/rest";
import { valueChanges, type ValueChange, type ValueChanges } from "./values";

const PAGE = 50;
/** Changes that are kept of one value. */
const MOST = 1000;
const MARK = "pin";

/** Pin a value, or take the pin away if it is the one. */
export function togglePin(pointer: string): void {
  step({ pin: pointer === address.peek().pin ? "" : pointer });
}

/** The pinned value where it is looked at: of which change; or that it is not there. */
export interface PinnedAt {
  change: ValueChange | null;
  isKnown: boolean;
}

interface Covered {
  pin: string;
  from: number;
  to: number;
  change: ValueChange | null;
}

export class Pins {
  /** The changes that are known, newest first. */
  readonly changes = signal<readonly ValueChange[]>([]);
  /** Where the search for earlier ones goes on; null if there are none. */
  readonly next = signal<number | null>(null);
  readonly problem = signal<Problem | null>(null);
  readonly isLoading = signal(false);
  /** All changes are known. */
  readonly isComplete = computed(() => this.next.value === null && !this.isLoading.value && !this.problem.value);
  readonly at: ReadonlySignal<PinnedAt>;
  private readonly earlier: Loader<void>;
  /** Versions below the changes that are known, at which one other change holds. */
  private readonly covered = signal<Covered | null>(null);
  private readonly stops: (() => void)[] = [];
  private underWay: AbortController | null = null;
  private pin = "";
  private readonly life = new AbortController();

  constructor(private readonly model: RunModel) {
    const head = rested(model.head, 1000);
    const at = rested(model.at);
    const pin = computed(() => address.value.pin);
    this.stops.push(head.close, at.close);
    // Below the changes that are known, the one before the version is asked for by itself.
    this.earlier = loader(
      () => (this.isBelow(at.value.value) && !this.isCovered(at.value.value) ? { pin: this.pin, to: at.value.value } : null),
      async ({ pin, to }, abort) => {
        const { changes, next } = await valueChanges(model.run, pin, to + 1, 1, abort);
        const change = changes[0] ?? null;
        if (change || next === null) this.covered.value = { pin, from: change?.version ?? 0, to, change };
      },
    );
    this.at = computed(() => this.found(model.at.value));
    this.stops.push(
      effect(() => this.begin(pin.value, head.value.value)),
      effect(() => this.mark(this.changes.value)),
    );
  }

  /** Load earlier changes. */
  async more(): Promise<void> {
    await this.load(this.next.peek());
  }

  again(): void {
    void this.load(this.changes.peek().length === 0 ? null : this.next.peek());
  }

  /** The version of the change after or before the version that is looked at; 0 if it is not known. */
  neighbour(isNext: boolean): number {
    const at = this.model.at.value;
    const versions = this.changes.value.map((change) => change.version);
    if (!isNext) return versions.find((version) => version < at) ?? 0;
    // Between this version and the changes that are known there may be others.
    return this.isBelow(at) ? 0 : (versions.findLast((version) => version > at) ?? 0);
  }

  /** Go to the change after or before; one before those that are known is asked for. */
  async go(isNext: boolean): Promise<void> {
    const at = this.model.at.peek();
    const known = this.neighbour(isNext);
    const version = known || isNext || this.next.peek() === null ? known : await this.before(at);
    if (version && this.model.at.peek() === at) this.model.jumpTo(version);
  }

  private async before(at: number): Promise<number> {
    let from: number | null = at;
    this.isLoading.value = true;
    try {
      while (from !== null) {
        const found: ValueChanges = await valueChanges(this.model.run, this.pin, from, 1, this.life.signal);
        if (found.changes[0]) return found.changes[0].version;
        from = found.next;
      }
    } catch (error) {
      if (error instanceof Problem) this.problem.value = error;
    } finally {
      this.isLoading.value = false;
    }
    return 0;
  }

  close(): void {
    this.life.abort();
    this.underWay?.abort();
    this.earlier.close();
    for (const stop of this.stops) stop();
    this.mark([]);
  }

  private begin(pin: string, head: number): void {
    if (pin !== this.pin) {
      this.pin = pin;
      this.changes.value = [];
      this.next.value = null;
      this.problem.value = null;
    }
    if (pin === "") this.underWay?.abort();
    else if (head > 0) void this.load(null);
  }

  private async load(before: number | null): Promise<void> {
    const pin = this.pin;
    this.underWay?.abort();
    const abort = new AbortController();
    this.underWay = abort;
    this.isLoading.value = true;
    try {
      const found = await valueChanges(this.model.run, pin, before, PAGE, abort.signal);
      if (abort.signal.aborted || pin !== this.pin) return;
      this.add(found, before);
      this.problem.value = null;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.problem.value = error instanceof Problem ? error : new Problem(0, "page", "The page failed", String(error));
    } finally {
      if (this.underWay === abort) this.isLoading.value = false;
    }
  }

  private add(found: ValueChanges, before: number | null): void {
    const known = this.changes.peek();
    if (before !== null) {
      this.changes.value = [...known, ...found.changes].slice(0, MOST);
      this.next.value = found.next;
      return;
    }
    // The newest again: what is known below them stays if nothing is missing between.
    const oldest = found.changes.at(-1)?.version ?? 0;
    const isJoined = known.length > 0 && known[0]!.version >= oldest && found.changes.length > 0;
    const kept = isJoined ? known.filter((change) => change.version < oldest) : [];
    this.changes.value = [...found.changes, ...kept];
    if (kept.length === 0) this.next.value = found.next;
  }

  private isBelow(at: number): boolean {
    const oldest = this.changes.value.at(-1)?.version;
    return this.next.value !== null && oldest !== undefined && at < oldest;
  }

  private found(at: number): PinnedAt {
    const change = this.changes.value.find((one) => one.version <= at);
    if (change) return { change, isKnown: true };
    if (!this.isBelow(at)) return { change: null, isKnown: this.isComplete.value };
    const covered = this.covered.value;
    if (!covered || !this.isCovered(at)) return { change: null, isKnown: false };
    return { change: covered.change, isKnown: true };
  }

  private isCovered(at: number): boolean {
    const covered = this.covered.value;
    return covered !== null && covered.pin === this.pin && covered.from <= at && at <= covered.to;
  }

  private mark(changes: readonly ValueChange[]): void {
    const { [MARK]: _, ...rest } = this.model.marks.peek();
    const versions = changes.map((change) => change.version).reverse();
    this.model.marks.value = versions.length ? { ...rest, [MARK]: versions } : rest;
  }
}
