/** Lanes of workers, model and tools near the version. Dead time is folded unless the wall clock is asked for. */
import "./lanes.css";
import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ask, client } from "../../core/api";
import { duration } from "../../core/format";
import { useLoader } from "../../core/loading";
import { visible } from "../../core/text";
import { useWidth } from "../../parts/useWidth";
import { axisOf, lanesOf, type Axis, type Lane, type Span, type WorkerSpan } from "./lanes_layout";
import { useRun } from "../model";

const SPANS = 120;
// Spans are loaded for so many versions at a time, away from where pages of events begin.
const BLOCK = 200;
const WORKERS = 200;
const LANE = 16;
const NAMES = 110;
const STORE = "turnledger.lanes.alive";

const isAlive = signal(localStorage.getItem(STORE) !== "no");

/** Whether only the time is drawn in which a worker was alive. */
export function AliveBox() {
  return (
    <label class="alive">
      <input
        type="checkbox"
        checked={isAlive.value}
        onChange={(event) => {
          isAlive.value = event.currentTarget.checked;
          localStorage.setItem(STORE, isAlive.value ? "yes" : "no");
        }}
      />
      worker alive
    </label>
  );
}

export function Lanes() {
  const model = useRun();
  const path = { run: model.run };
  const spans = useLoader(
    () => {
      const head = model.head.value;
      const block = Math.floor((model.at.value + BLOCK / 2 - 1) / BLOCK) * BLOCK + BLOCK / 2;
      return head === 0 ? null : { at: Math.min(head, block) };
    },
    ({ at }, abort) =>
      ask(
        client.GET("/v1/runs/{run}/timeline", {
          params: { path, query: { at, from: -SPANS, limit: SPANS } },
          signal: abort,
        }),
      ),
  );
  const workers = useLoader(
    () => (model.head.value === 0 ? null : { claims: claimsIn(model.shape.value) }),
    (_key, abort) =>
      ask(
        client.GET("/v1/runs/{run}/timeline", {
          params: { path, query: { list: "workers", from: -WORKERS, limit: WORKERS } },
          signal: abort,
        }),
      ),
  );
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const found = (spans.loaded.value.value?.items ?? []) as Span[];
  const working = (workers.loaded.value.value?.items ?? []) as WorkerSpan[];
  const now = model.events.get(model.at.value)?.recorded_at;
  void model.events.changed.value;
  const lanes = lanesOf(found, working);
  const axis = axisOf(found, working, Math.max(width - NAMES, 100), isAlive.value);
  return (
    <section class="lanes" aria-label="Workers, model and tools over time">
      <div class="drawn" ref={box} style={{ height: `${Math.max(lanes.length, 2) * LANE}px` }}>
        {axis.folds.map((fold) => (
          <div class="fold" key={fold.x} style={{ left: `${NAMES + fold.x}px`, width: `${fold.width}px` }} title={`${duration(fold.seconds)} without a worker`}>
            <span>{duration(fold.seconds)}</span>
          </div>
        ))}
        {lanes.map((lane, place) => (
          <LaneRow key={lane.name} lane={lane} axis={axis} top={place * LANE} go={(version) => model.jumpTo(version)} />
        ))}
        {now && <div class="now" style={{ left: `${NAMES + axis.x(Date.parse(now))}px` }} />}
      </div>
    </section>
  );
}

function claimsIn(shape: string): number {
  let claims = 0;
  for (let place = 0; place < shape.length; place++) if ("w+$Xxz".includes(shape[place]!)) claims += 1;
  return claims;
}

const OUTCOMES: Record<string, string> = {
  in_doubt: "?",
  failed: "✕",
  died: "✕",
};

function LaneRow({ lane, axis, top, go }: { lane: Lane; axis: Axis; top: number; go: (version: number) => void }) {
  return (
    <>
      <div class="lane-name" style={{ top: `${top}px` }} title={visible(lane.name)}>
        {visible(lane.name)}
      </div>
      {lane.spans.map((span) => {
        const from = axis.x(span.from);
        const to = axis.x(span.to);
        const took = duration((span.to - span.from) / 1000);
        return (
          <button
            key={span.version}
            class={`span span-${lane.kind} outcome-${span.outcome}`}
            tabIndex={-1}
            style={{ left: `${NAMES + from}px`, width: `${Math.max(to - from, 3)}px`, top: `${top + 2}px` }}
            title={`${visible(span.name)}: ${span.outcome.replace("_", " ")}, ${took}, from event ${span.version}`}
            aria-label={`${visible(span.name)}, ${span.outcome.replace("_", " ")}, event ${span.version}`}
            onClick={() => go(span.version)}
          >
            {OUTCOMES[span.outcome] ?? ""}
          </button>
        );
      })}
    </>
  );
}
