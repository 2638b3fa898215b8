/** Actions: one table that binds the keys, and that help, the list by name and the docs are made of. */
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import table from "./actions.json";

export interface Action {
  id: string;
  keys: string[];
  name: string;
  group: string;
}

export const ACTIONS: readonly Action[] = table;
const byKey = new Map(ACTIONS.flatMap((action) => action.keys.map((key) => [key, action.id] as const)));
// The last component that offers an action has it: an overlay goes before what is below it.
const offered = new Map<string, (() => void)[]>();
/** Rises whenever an action comes or goes. */
export const offers = signal(0);

/** Offer an action while the component is there, and `isOn`. */
export function useAction(id: string, run: () => void, isOn = true): void {
  const latest = useRef(run);
  latest.current = run;
  // With what is shown, not after it: a key that is pressed at once is not lost.
  useLayoutEffect(() => {
    if (!isOn) return undefined;
    const mine = () => latest.current();
    offered.set(id, [...(offered.get(id) ?? []), mine]);
    offers.value = offers.peek() + 1;
    return () => {
      offered.set(id, (offered.get(id) ?? []).filter((one) => one !== mine));
      offers.value = offers.peek() + 1;
    };
  }, [id, isOn]);
}

export function isOffered(id: string): boolean {
  return (offered.get(id)?.length ?? 0) > 0;
}

// How much of what actions need has not come yet.
let awaited = 0;
// Actions that were asked for meanwhile, in order.
let early: string[] = [];

/** While `isWaiting`, actions that need what is waited for are kept, and done when it has come. */
export function useWaiting(isWaiting: boolean): void {
  useLayoutEffect(() => {
    if (!isWaiting) return undefined;
    awaited += 1;
    return () => {
      awaited -= 1;
      setTimeout(doNext);
    };
  }, [isWaiting]);
}

/** Do an action, at once or when what it needs has come; false if nothing offers it. */
export function perform(id: string): boolean {
  // These need nothing. What was asked for before, for a screen that may be left now, is given up.
  const isAtOnce = id === "search" || ACTIONS.some((action) => action.id === id && action.group === "Page");
  if (isAtOnce) early = [];
  else if (awaited > 0 || early.length > 0) {
    early.push(id);
    return true;
  }
  return done(id);
}

function done(id: string): boolean {
  const run = offered.get(id)?.at(-1);
  run?.();
  return run !== undefined;
}

/** One at a time: what the first one opens may have to be waited for by the second. */
function doNext(): void {
  if (awaited > 0 || early.length === 0) return;
  done(early.shift()!);
  setTimeout(doNext);
}

/** How a key is written for people. */
export function keyName(key: string): string {
  const names: Record<string, string> = { " ": "Space", ArrowDown: "↓", ArrowUp: "↑", "Control+k": "Ctrl+K", "Meta+k": "⌘K" };
  return names[key] ?? key;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target.matches("input:not([type=range]):not([type=checkbox]), textarea, select");
}

// By meaning: `event.key` is what the key writes, on any keyboard.
window.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const modifier = event.ctrlKey ? "Control+" : event.metaKey ? "Meta+" : "";
  const id = byKey.get(modifier + (modifier ? event.key.toLowerCase() : event.key));
  if (!id) return;
  if (!modifier && isTyping(event.target) && event.key !== "Escape") return;
  // Buttons, boxes, links and tabs have these keys themselves.
  const isControl = event.target instanceof Element && event.target.closest("button, input, a, [role=tab], summary, [role=treeitem]");
  if (isControl && (event.key === " " || event.key === "Enter")) return;
  if (perform(id)) event.preventDefault();
});
