/** The address: all that is chosen is in it, so that a link opens the same thing for the next reader. */
import { signal } from "@preact/signals";

export const TABS = ["changed", "event", "state", "tools", "usage"] as const;
export type Tab = (typeof TABS)[number];
export type Screen = "runs" | "run" | "compare" | "doubts" | "event" | "unknown";

export interface Address {
  screen: Screen;
  /** The run of the screen, or the first of a comparison. */
  run: string;
  /** The second run of a comparison. */
  other: string;
  /** The event's id of /e/. */
  event: string;
  /** The version that is looked at; null: the end, as it grows. In a comparison: the row. */
  at: number | null;
  tab: Tab;
  /** A JSON Pointer whose changes are shown; "" for none. */
  pin: string;
  /** What is searched in the run, or the filter of the list of runs. */
  q: string;
}

const NOTHING: Address = { screen: "unknown", run: "", other: "", event: "", at: null, tab: "changed", pin: "", q: "" };

export function parse(path: string, search: string): Address {
  const parts = path.split("/").filter(Boolean).map(decoded);
  const given = new URLSearchParams(search);
  const at = /^\d{1,15}$/.test(given.get("at") ?? "") ? Number(given.get("at")) : null;
  const tab = TABS.find((one) => one === given.get("tab")) ?? "changed";
  const rest = { ...NOTHING, at, tab, pin: given.get("pin") ?? "", q: given.get("q") ?? "" };
  const [first = "", second = "", third = ""] = parts;
  if (parts.length === 0) return { ...rest, screen: "runs" };
  if (first === "doubts" && parts.length === 1) return { ...rest, screen: "doubts" };
  if (first === "runs" && parts.length === 2) return { ...rest, screen: "run", run: second };
  if (first === "compare" && parts.length === 3) return { ...rest, screen: "compare", run: second, other: third };
  if (first === "e" && parts.length === 2) return { ...rest, screen: "event", event: second };
  return rest;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function href(to: Partial<Address> & { screen: Screen }): string {
  const full = { ...NOTHING, ...to };
  const id = encodeURIComponent;
  const paths: Record<Screen, string> = {
    runs: "/",
    doubts: "/doubts",
    run: `/runs/${id(full.run)}`,
    compare: `/compare/${id(full.run)}/${id(full.other)}`,
    event: `/e/${id(full.event)}`,
    unknown: "/",
  };
  const query = new URLSearchParams();
  if (full.at !== null) query.set("at", String(full.at));
  if (full.tab !== "changed") query.set("tab", full.tab);
  if (full.pin) query.set("pin", full.pin);
  if (full.q) query.set("q", full.q);
  const text = query.toString();
  return paths[full.screen] + (text && `?${text}`);
}

export const address = signal(parse(location.pathname, location.search));

window.addEventListener("popstate", () => {
  clearTimeout(writing);
  writing = 0;
  address.value = parse(location.pathname, location.search);
});

/** Go somewhere by a jump: Back comes back from it. */
export function jump(change: Partial<Address>): void {
  if (writing) write();
  const next = { ...address.value, ...change };
  const to = href(next);
  if (to === location.pathname + location.search) return;
  history.pushState(null, "", to);
  address.value = next;
}

/** Go somewhere by a step: Back does not stop here. */
export function step(change: Partial<Address>): void {
  const next = { ...address.value, ...change };
  address.value = next;
  writeSoon();
}

// Browsers refuse more than some hundred changes of the address a minute: while a key is held,
// the address is written when it rests.
let writing = 0;
function writeSoon(): void {
  clearTimeout(writing);
  writing = window.setTimeout(write, 120);
}
function write(): void {
  clearTimeout(writing);
  writing = 0;
  history.replaceState(null, "", href(address.value));
}
window.addEventListener("pagehide", write);
