/** The items of a list before the last ones: pages that a reader asked for, of one version. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Problem } from "../../core/api";
import type { Window } from "../model";

const PAGE = 50;

/** The page of a list that is looked at instead of its end; null for the end. */
export class Earlier {
  readonly page = signal<Window | null>(null);
  readonly problem = signal<Problem | null>(null);
  private underWay: AbortController | null = null;

  constructor(private readonly load: (from: number, limit: number, abort: AbortSignal) => Promise<Window>) {}

  /** Look at the items that end before this place. */
  before(place: number): void {
    const from = Math.max(0, place - PAGE);
    void this.fetch(from, place - from);
  }

  after(place: number): void {
    void this.fetch(place, PAGE);
  }

  /** Look at the end again. */
  end(): void {
    this.underWay?.abort();
    this.page.value = null;
    this.problem.value = null;
  }

  private async fetch(from: number, limit: number): Promise<void> {
    this.underWay?.abort();
    const abort = new AbortController();
    this.underWay = abort;
    try {
      this.page.value = await this.load(from, limit, abort.signal);
      this.problem.value = null;
    } catch (error) {
      if (!abort.signal.aborted) this.problem.value = error as Problem;
    }
  }
}

/** Pages of a list at a version; another version shows its end. */
export function useEarlier(
  at: ReadonlySignal<number>,
  load: (at: number, from: number, limit: number, abort: AbortSignal) => Promise<Window>,
): Earlier {
  const earlier = useMemo(() => new Earlier((from, limit, abort) => load(at.peek(), from, limit, abort)), []);
  const version = at.value;
  useEffect(() => () => earlier.end(), [version]);
  return earlier;
}
