/** A number at rest: while it changes quickly, as when a key is held, nothing is loaded for it. */
import { effect, signal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

const PAUSE = 150;

export interface Rested {
  value: ReadonlySignal<number>;
  close(): void;
}

/** Follows a number: at once after a pause, else when it has not changed for `pause` milliseconds. */
export function rested(source: ReadonlySignal<number>, pause = PAUSE): Rested {
  const value = signal(source.peek());
  let timer = 0;
  let last = -Infinity;
  const stop = effect(() => {
    const now = source.value;
    const isQuick = performance.now() - last < pause;
    last = performance.now();
    clearTimeout(timer);
    if (isQuick && value.peek() !== 0) timer = window.setTimeout(() => (value.value = now), pause);
    else value.value = now;
  });
  return {
    value,
    close: () => {
      clearTimeout(timer);
      stop();
    },
  };
}

/** The same for a component. */
export function useRested(source: ReadonlySignal<number>): ReadonlySignal<number> {
  const made = useMemo(() => rested(source), [source]);
  useEffect(() => made.close, [made]);
  return made.value;
}
