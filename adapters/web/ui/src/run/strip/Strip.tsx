/** The whole run in one line: density by kind, what stands out, and a slider. */
import "./strip.css";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { step } from "../../core/address";
import { useAction } from "../../core/actions";
import { count } from "../../core/format";
import { DOUBTS, FAILURES, kindOfCharacter, RESUMES } from "../../core/kinds";
import { AliveBox } from "./Lanes";
import { useRun, type RunModel } from "../model";
import { clusters, draw, ROW, type Standout } from "./strip_drawing";

const PLAY_SECONDS = 0.35;

export function Strip() {
  const model = useRun();
  const rows = standouts(model);
  return (
    <section class="strip" aria-label="The whole run">
      <div class="line">
        <Drawing rows={rows} />
        <Thumb />
      </div>
      <div class="legend">
        <Play />
        {rows.map((row) => (
          <Counted key={row.name} row={row} />
        ))}
        <AliveBox />
      </div>
    </section>
  );
}

/** What stands out, each with a row of its own above the strip. */
function standouts(model: RunModel): Standout[] {
  const shape = model.shape.value;
  const rows: Standout[] = [
    { name: "failure", symbol: "✕", color: "--bad", versions: versionsOf(shape, FAILURES) },
    { name: "doubt", symbol: "?", color: "--doubt", versions: versionsOf(shape, DOUBTS) },
    { name: "resume", symbol: "↻", color: "--resume", versions: versionsOf(shape, RESUMES) },
  ];
  const damaged = [...model.damaged.value.keys()].sort((a, b) => a - b);
  if (damaged.length) rows.unshift({ name: "changed record", symbol: "!", color: "--bad", versions: damaged });
  for (const [name, versions] of Object.entries(model.marks.value)) {
    rows.push({ name: name === "pin" ? "pinned change" : name, symbol: name === "pin" ? "▾" : "•", color: "--accent", versions });
  }
  return rows;
}

let known: { shape: string; found: Map<string, number[]> } = { shape: "", found: new Map() };

function versionsOf(shape: string, characters: string): number[] {
  if (known.shape !== shape) known = { shape, found: new Map() };
  const before = known.found.get(characters);
  if (before) return before;
  const found: number[] = [];
  for (let place = 0; place < shape.length; place++) if (characters.includes(shape[place]!)) found.push(place + 1);
  known.found.set(characters, found);
  return found;
}

function Drawing({ rows }: { rows: Standout[] }) {
  const model = useRun();
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSignal(0);
  useLayoutEffect(() => {
    const redraw = () => {
      size.value += 1;
    };
    const observer = new ResizeObserver(redraw);
    observer.observe(canvas.current!);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", redraw);
    return () => {
      observer.disconnect();
      theme.removeEventListener("change", redraw);
    };
  }, []);
  void size.value;
  useLayoutEffect(() => draw(canvas.current!, model.shape.value, model.head.value, rows));
  const said = rows.map((row) => count(row.versions.length, row.name)).join(", ");
  return <canvas ref={canvas} role="img" aria-label={`${count(model.head.value, "event")}: ${said}`} style={{ height: `${rows.length * ROW + 22}px` }} />;
}

/** The slider: its thumb is on the event that it names. */
function Thumb() {
  const model = useRun();
  const box = useRef<HTMLDivElement>(null);
  const head = model.head.value;
  const at = model.at.value;

  function versionAt(event: PointerEvent): number {
    const { left, width } = box.current!.getBoundingClientRect();
    return Math.max(1, Math.min(head, Math.floor(((event.clientX - left) / width) * head) + 1));
  }

  /** A click near something that stands out means it. */
  function meant(event: PointerEvent): number {
    const { top, left, width } = box.current!.getBoundingClientRect();
    const rows = standouts(model);
    const row = rows[Math.floor((event.clientY - top) / ROW)];
    const near = row && clusters(row.versions, head, width).find((one) => Math.abs(one.x - (event.clientX - left)) < 7);
    return near ? near.first : versionAt(event);
  }

  return (
    <div
      class="slider"
      ref={box}
      role="slider"
      tabIndex={0}
      aria-label="Event"
      aria-valuemin={1}
      aria-valuemax={Math.max(head, 1)}
      aria-valuenow={Math.max(at, 1)}
      aria-valuetext={`event ${at}: ${kindOfCharacter(model.shape.value[at - 1] ?? ".").meaning}`}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        model.jumpTo(meant(event));
      }}
      onPointerMove={(event) => {
        if (event.buttons & 1 && Math.abs(event.movementX) > 0) step({ at: versionAt(event) });
      }}
      onKeyDown={(event) => {
        const far = Math.max(1, Math.round(head / 20));
        const by: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, PageUp: far, PageDown: -far };
        if (!(event.key in by)) return;
        event.preventDefault();
        model.step(by[event.key]!);
      }}
    >
      <div
        class="thumb"
        style={{ left: `${head ? ((at - 0.5) / head) * 100 : 0}%`, top: `${standouts(model).length * ROW - 1}px` }}
      />
    </div>
  );
}

function Counted({ row }: { row: Standout }) {
  const model = useRun();
  if (row.versions.length === 0) return <span class="counted none">no {row.name}</span>;
  function go(isForward: boolean): void {
    const at = model.at.peek();
    const found = isForward ? row.versions.find((one) => one > at) : row.versions.findLast((one) => one < at);
    if (found) model.jumpTo(found);
  }
  return (
    <span class="counted">
      <button class="small" aria-label={`Previous ${row.name}`} onClick={() => go(false)}>
        ‹
      </button>
      <span aria-hidden="true">{row.symbol}</span> {count(row.versions.length, row.name)}
      <button class="small" aria-label={`Next ${row.name}`} onClick={() => go(true)}>
        ›
      </button>
    </span>
  );
}

/** Plays the run, event by event, to its end. */
function Play() {
  const model = useRun();
  const isPlaying = useSignal(false);
  useAction("play", toggle);
  function toggle(): void {
    if (!isPlaying.value && model.at.value >= model.head.value) model.jumpTo(1);
    isPlaying.value = !isPlaying.value;
  }
  useEffect(() => {
    if (!isPlaying.value) return undefined;
    const timer = window.setInterval(() => {
      if (model.at.peek() < model.head.peek()) model.step(1);
      else isPlaying.value = false;
    }, PLAY_SECONDS * 1000);
    return () => clearInterval(timer);
  }, [isPlaying.value]);
  return <button onClick={toggle}>{isPlaying.value ? "‖ pause" : "▶ play"}</button>;
}

