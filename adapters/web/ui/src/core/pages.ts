/** A long list in pages of 200: those near what is shown are kept, all others forgotten. */
import { signal } from "@preact/signals";
import { Problem } from "./api";

export const PAGE = 200;
const KEPT = 12;

/** Loads the items from a place on, at most a page of them. */
export type LoadPage<T> = (from: number, abort: AbortSignal) => Promise<T[]>;

export class Pages<T> {
  /** Rises when a page has come: what is shown of `get` may be another. */
  readonly changed = signal(0);
  readonly problem = signal<Problem | null>(null);
  private readonly pages = new Map<number, T[]>();
  private readonly underWay = new Map<number, AbortController>();
  private needed = -1;

  constructor(private readonly load: LoadPage<T>) {}

  /** The item at a place, counted from 0, if its page is here. */
  get(place: number): T | undefined {
    return this.pages.get(Math.floor(place / PAGE))?.[place % PAGE];
  }

  /** Load the pages of the places from first to last, of `total` in all; requests for others end. */
  want(first: number, last: number, total: number): void {
    const from = Math.floor(Math.max(first, 0) / PAGE);
    const to = Math.floor(Math.max(0, Math.min(last, total - 1)) / PAGE);
    for (const [page, abort] of this.underWay) {
      if ((page >= from && page <= to) || page === this.needed) continue;
      abort.abort();
      this.underWay.delete(page);
    }
    for (let page = from; page <= to; page++) {
      const known = this.pages.get(page);
      const whole = Math.min(PAGE, total - page * PAGE);
      if (known && known.length >= whole) this.touch(page, known);
      else if (!this.underWay.has(page)) void this.fetch(page);
    }
  }

  /** Load the page of a place whatever is in sight. */
  need(place: number): void {
    this.needed = Math.floor(place / PAGE);
    if (!this.underWay.has(this.needed)) void this.fetch(this.needed);
  }

  close(): void {
    for (const abort of this.underWay.values()) abort.abort();
  }

  private touch(page: number, items: T[]): void {
    this.pages.delete(page);
    this.pages.set(page, items);
    for (const old of this.pages.keys()) {
      if (this.pages.size <= KEPT) break;
      this.pages.delete(old);
    }
  }

  private async fetch(page: number): Promise<void> {
    const abort = new AbortController();
    this.underWay.set(page, abort);
    try {
      this.touch(page, await this.load(page * PAGE, abort.signal));
      this.problem.value = null;
    } catch (error) {
      if (!abort.signal.aborted) this.problem.value = error as Problem;
    } finally {
      if (this.underWay.get(page) === abort) this.underWay.delete(page);
      this.changed.value += 1;
    }
  }
}
