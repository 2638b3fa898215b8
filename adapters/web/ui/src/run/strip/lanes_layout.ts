/** Where spans stand: a lane for workers, the model and each tool, and an axis on which dead time is folded. */
import { scaleLinear } from "d3-scale";

export interface Span {
  kind: string;
  name: string;
  outcome: string;
  started_at: string;
  ended_at?: string;
  from_version: number;
}

export interface WorkerSpan {
  worker: string;
  outcome: string;
  started_at: string;
  ended_at?: string;
  from_version: number;
}

export interface Placed {
  name: string;
  outcome: string;
  version: number;
  from: number;
  to: number;
}

export interface Lane {
  name: string;
  kind: string;
  spans: Placed[];
}

export interface Fold {
  x: number;
  width: number;
  seconds: number;
}

export interface Axis {
  x: (time: number) => number;
  folds: Fold[];
}

const MOST_LANES = 8;
const FOLD = 60;

export function lanesOf(spans: readonly Span[], workers: readonly WorkerSpan[]): Lane[] {
  const lanes: Lane[] = [{ name: "workers", kind: "worker", spans: [] }];
  const [from, to] = range(spans);
  for (const one of workers) {
    const placed = place(one.worker, one);
    if (spans.length === 0 || (placed.to >= from && placed.from <= to)) lanes[0]!.spans.push(placed);
  }
  for (const one of spans) {
    const name = one.kind === "tool" ? one.name : one.kind;
    let lane = lanes.find((known) => known.name === name && known.kind === one.kind);
    if (!lane && lanes.length < MOST_LANES) lanes.push((lane = { name, kind: one.kind, spans: [] }));
    // The last lane takes what has none of its own, and says so.
    if (!lane) {
      lane = lanes.at(-1)!;
      lane.name = "others";
    }
    lane.spans.push(place(one.name, one));
  }
  return lanes;
}

function place(name: string, one: Span | WorkerSpan): Placed {
  const from = Date.parse(one.started_at);
  const to = one.ended_at ? Date.parse(one.ended_at) : from;
  return { name, outcome: one.outcome, version: one.from_version, from, to };
}

function range(spans: readonly Span[]): [number, number] {
  let from = Infinity;
  let to = -Infinity;
  for (const one of spans) {
    from = Math.min(from, Date.parse(one.started_at));
    to = Math.max(to, Date.parse(one.ended_at ?? one.started_at));
  }
  return [from, to];
}

/** The axis over the spans; without `isAlive` it is the wall clock's. */
export function axisOf(spans: readonly Span[], workers: readonly WorkerSpan[], width: number, isAlive: boolean): Axis {
  const [from, to] = spans.length ? range(spans) : range(workers.map((one) => ({ ...one, kind: "", name: "" })));
  if (!(from < to)) return { x: () => 0, folds: [] };
  const alive = isAlive ? aliveWithin(workers, from, to) : [];
  if (alive.length < 2) {
    const scale = scaleLinear([from, to], [0, width]).clamp(true);
    return { x: (time) => scale(time), folds: [] };
  }
  const total = alive.reduce((sum, [begin, end]) => sum + (end - begin), 0);
  const room = Math.max(width - FOLD * (alive.length - 1), width / 3);
  const times: number[] = [];
  const places: number[] = [];
  const folds: Fold[] = [];
  let x = 0;
  alive.forEach(([begin, end], index) => {
    if (index > 0) {
      folds.push({ x, width: FOLD, seconds: (begin - alive[index - 1]![1]) / 1000 });
      x += FOLD;
    }
    times.push(begin);
    places.push(x);
    x += total > 0 ? ((end - begin) / total) * room : room / alive.length;
    times.push(end);
    places.push(x);
  });
  const scale = scaleLinear(times, places).clamp(true);
  return { x: (time) => scale(time), folds };
}

/** The times within which a worker was alive, joined where they meet. */
function aliveWithin(workers: readonly WorkerSpan[], from: number, to: number): [number, number][] {
  const found: [number, number][] = [];
  for (const one of workers) {
    const begin = Math.max(Date.parse(one.started_at), from);
    const end = Math.min(one.ended_at ? Date.parse(one.ended_at) : to, to);
    if (end < begin) continue;
    const last = found.at(-1);
    if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
    else found.push([begin, end]);
  }
  return found;
}
