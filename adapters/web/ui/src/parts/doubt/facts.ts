/** Which events a call was begun, doubted and decided by, and by which worker: asked once each. */
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ask, client, type Schemas } from "../../core/api";
import type { Call } from "./call";

export type Holder = Schemas["Holder"];

/** The version of the event that set a field of a call; 0 while it is not known. */
export type Versions = Partial<Record<Field, number>>;
type Field = (typeof FIELDS)[number];
const FIELDS = ["attempts", "doubt", "decision", "approval"] as const;

const known = new Map<string, number>();
const MOST = 2_000;
// Only once the reader rests: stepping through a run asks for nothing here.
const REST = 300;

function keyOf(run: string, call: Call, field: Field): string {
  return `${run} ${call.number} ${call.attempts ?? 0} ${field} ${JSON.stringify(call[field])}`;
}

async function versionOf(run: string, call: Call, field: Field, abort: AbortSignal): Promise<number> {
  const key = keyOf(run, call, field);
  const found = known.get(key);
  if (found !== undefined) return found;
  const query = { pointer: `/tools/${call.number - 1}/${field}`, at: call.at };
  const record = await ask(client.GET("/v1/runs/{run}/blame", { params: { path: { run }, query }, signal: abort }));
  remember(key, record.version);
  return record.version;
}

function remember(key: string, version: number): void {
  if (known.size > MOST) known.clear();
  known.set(key, version);
}

/** Learn from the changes of a version which fields of calls it set: a reader who steps asks for nothing. */
export function learn(run: string, calls: readonly Call[], changes: Schemas["Changes"] | undefined): void {
  for (const { op, path } of changes?.changes ?? []) {
    const [, view, place, name] = path.split("/");
    if (view !== "tools" || op === "remove") continue;
    const call = calls.find((one) => one.number === Number(place) + 1 && one.at === changes!.version);
    if (!call) continue;
    for (const field of FIELDS) if (call[field] && (name === undefined || name === field)) remember(keyOf(run, call, field), call.at);
  }
}

function rest(abort: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, REST);
    abort.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(abort.reason as Error);
    });
  });
}

/** The versions of the events that set these fields of a call, as they come. */
export function useVersions(run: string, call: Call, fields: readonly Field[]): Versions {
  const wanted = fields.filter((field) => call[field]);
  const key = wanted.map((field) => keyOf(run, call, field)).join("\n");
  const versions = useMemo(() => signal<Versions>({}), [key]);
  useEffect(() => {
    const abort = new AbortController();
    void collect(run, call, wanted, versions, abort.signal).catch(() => undefined);
    return () => abort.abort();
  }, [key]);
  return versions.value;
}

async function collect(
  run: string,
  call: Call,
  fields: readonly Field[],
  versions: Signal<Versions>,
  abort: AbortSignal,
): Promise<void> {
  const add = (field: Field, version: number) => {
    versions.value = { ...versions.peek(), [field]: version };
  };
  for (const field of fields) {
    const version = known.get(keyOf(run, call, field));
    if (version !== undefined) add(field, version);
  }
  const missing = fields.filter((field) => versions.peek()[field] === undefined);
  if (missing.length > 0) await rest(abort);
  for (const field of missing) add(field, await versionOf(run, call, field, abort));
}

const workers = new Map<string, string>();

/** The worker that had the run at a version; "" while it is not known. */
export function useWorkerAt(run: string, version: number | undefined): string {
  const key = `${run} ${version}`;
  const worker = useMemo(() => signal(workers.get(key) ?? ""), [key]);
  useEffect(() => {
    if (version === undefined || worker.peek() !== "") return undefined;
    const abort = new AbortController();
    const query = { at: version, list: "workers", from: -1, limit: 1, cut: true };
    ask(client.GET("/v1/runs/{run}/timeline", { params: { path: { run }, query }, signal: abort.signal })).then(
      (found) => {
        const last = found.items[0] as { worker?: string } | undefined;
        worker.value = last?.worker ?? "";
        if (workers.size > MOST) workers.clear();
        workers.set(key, worker.value);
      },
      () => undefined,
    );
    return () => abort.abort();
  }, [key]);
  return worker.value;
}

// A lease ends without an event: while one counts, it is asked for again.
const AGAIN = 15_000;

/** Which worker has the run now; null while it is not known. */
export function useHolder(run: string, isWanted: boolean, version: number): Holder | null {
  const holder = useMemo(() => signal<Holder | null>(null), [run]);
  useEffect(() => {
    if (!isWanted) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const load = () => {
      const asked = client.GET("/v1/runs/{run}/claim", { params: { path: { run } }, signal: abort.signal, cache: "no-store" });
      ask(asked).then(
        (found) => {
          holder.value = found;
          if (found.is_live) timer = window.setTimeout(load, AGAIN);
        },
        () => undefined,
      );
    };
    timer = window.setTimeout(load, holder.peek() === null ? 0 : REST);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [run, isWanted, version]);
  return holder.value;
}

const session = signal<Schemas["Session"] | null>(null);
let isAsked = false;

/** Why this session may not decide; "" if it may, or while that is not known. */
export function useReason(): string {
  useEffect(() => {
    if (isAsked) return;
    isAsked = true;
    ask(client.GET("/v1/session", {})).then(
      (found) => {
        session.value = found;
      },
      () => {
        isAsked = false; // the next card asks again
      },
    );
  }, []);
  if (session.value?.role !== "reader") return "";
  return "This session may read only: to decide, it needs the role writer. Open the link that `turnledger serve` prints, or use `turnledger resolve`.";
}
