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

export function perform(id: string): boolean {
  const run = offered.get(id)?.at(-1);
  run?.();
  return run !== undefined;
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
  // Buttons, links and tabs have these keys themselves.
  const isControl = event.target instanceof Element && event.target.closest("button, a, [role=tab], summary, [role=treeitem]");
  if (isControl && (event.key === " " || event.key === "Enter")) return;
  if (perform(id)) event.preventDefault();
});
