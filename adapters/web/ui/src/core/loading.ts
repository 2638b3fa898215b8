/** Loading: one request under way for each thing that is shown, always of what is wanted now. */
import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Problem } from "./api";

/** What is known of something that is loaded: `value` may be of the key before, until `isStale` is false. */
export interface Loaded<T> {
  value: T | undefined;
  problem: Problem | null;
  isStale: boolean;
}

export interface Loader<T> {
  loaded: ReadonlySignal<Loaded<T>>;
  /** Load again, with the same key. */
  again(): void;
  close(): void;
}

// A request that is younger is let finish when another thing is wanted: while a key is held,
// something is shown, and the server is asked for no more than it can answer.
const PATIENCE = 250;

/** Load `load(key)` whenever the key changes; null loads nothing. */
export function loader<K, T>(key: () => K | null, load: (key: K, abort: AbortSignal) => Promise<T>): Loader<T> {
  const loaded = signal<Loaded<T>>({ value: undefined, problem: null, isStale: true });
  const turn = signal(0);
  let underWay: { text: string; abort: AbortController; timer: number } | null = null;
  let wanted: K | null = null;
  // What was asked for last: signals of the key may change without another key.
  let asked = "";
  let isClosed = false;

  async function begin(): Promise<void> {
    if (wanted === null || isClosed) return;
    const key = wanted;
    const mine = { text: JSON.stringify(key), abort: new AbortController(), timer: 0 };
    underWay = mine;
    let next: Loaded<T>;
    try {
      next = { value: await load(key, mine.abort.signal), problem: null, isStale: false };
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, "page", "The page failed", String(error));
      next = { value: loaded.peek().value, problem, isStale: false };
    }
    clearTimeout(mine.timer);
    if (underWay !== mine) return;
    underWay = null;
    if (isClosed) return;
    const isWanted = wanted !== null && JSON.stringify(wanted) === mine.text;
    if (isWanted) loaded.value = next;
    else if (!mine.abort.signal.aborted && next.problem === null) loaded.value = { ...next, isStale: true };
    if (!isWanted) void begin();
  }

  const stop = effect(() => {
    wanted = key();
    const again = turn.value;
    const now = wanted === null ? "" : `${again} ${JSON.stringify(wanted)}`;
    const isAnother = now !== asked;
    asked = now;
    if (wanted === null || !isAnother) return;
    if (!loaded.peek().isStale) loaded.value = { ...loaded.peek(), isStale: true };
    if (underWay === null) void begin();
    else if (underWay.text !== JSON.stringify(wanted) && underWay.timer === 0) {
      const { abort } = underWay;
      underWay.timer = window.setTimeout(() => abort.abort(), PATIENCE);
    }
  });

  return {
    loaded,
    again: () => {
      turn.value += 1;
    },
    close: () => {
      isClosed = true;
      stop();
      underWay?.abort.abort();
    },
  };
}

/** A part of what a loader loads. */
export function partOf<T, P>(whole: Loader<T>, pick: (value: T) => P): Loader<P> {
  const loaded = computed(() => {
    const { value, ...rest } = whole.loaded.value;
    return { ...rest, value: value === undefined ? undefined : pick(value) };
  });
  return { loaded, again: whole.again, close: whole.close };
}

/** A loader that lives as long as its component. Its key is a function of signals. */
export function useLoader<K, T>(key: () => K | null, load: (key: K, abort: AbortSignal) => Promise<T>): Loader<T> {
  const made = useMemo(() => loader(key, load), []);
  useEffect(() => made.close, []);
  return made;
}
