/** Draws the strip: a column a pixel, with the kinds of its events in proportion. */
import { kindOfCharacter } from "../../core/kinds";

export interface Standout {
  name: string;
  symbol: string;
  /** A variable of the style sheet. */
  color: string;
  /** Versions, in order. */
  versions: readonly number[];
}

interface Cluster {
  x: number;
  first: number;
  count: number;
}

export const ROW = 13;
const BODY = 20;
// Symbols that are nearer to each other are drawn as one, with their count.
const APART = 34;

const COLORS: Record<string, string> = {
  run: "--quiet",
  done: "--good",
  decision: "--good",
  worker: "--quiet",
  resume: "--resume",
  wait: "--doubt",
  doubt: "--doubt",
  failure: "--bad",
  message: "--ink",
  model: "--model",
  tool: "--tool",
};

/** Versions that lie close together on a strip of this width, as one. */
export function clusters(versions: readonly number[], head: number, width: number): Cluster[] {
  const found: Cluster[] = [];
  for (const version of versions) {
    const x = ((version - 0.5) / head) * width;
    const last = found.at(-1);
    if (last && x - last.x < APART) last.count += 1;
    else found.push({ x, first: version, count: 1 });
  }
  return found;
}

export function draw(canvas: HTMLCanvasElement, shape: string, head: number, rows: readonly Standout[]): void {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = rows.length * ROW + BODY + 2;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  if (!pen || head === 0 || width === 0) return;
  pen.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const color = (name: string) => style.getPropertyValue(name) || "gray";
  drawBody(pen, shape, head, width, rows.length * ROW + 1, color);
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  rows.forEach((row, place) => {
    pen.fillStyle = color(row.color);
    for (const one of clusters(row.versions, head, width)) {
      const text = one.count > 1 ? `${row.symbol}${one.count}` : row.symbol;
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.max(half, Math.min(width - half, one.x)), place * ROW + ROW / 2);
    }
  });
}

function drawBody(
  pen: CanvasRenderingContext2D,
  shape: string,
  head: number,
  width: number,
  top: number,
  color: (name: string) => string,
): void {
  const columns = Math.min(head, Math.floor(width));
  const column = width / columns;
  for (let place = 0; place < columns; place++) {
    const from = Math.floor((place * head) / columns);
    const to = Math.max(from + 1, Math.floor(((place + 1) * head) / columns));
    const kinds = new Map<string, number>();
    for (let index = from; index < to && index < shape.length; index++) {
      const { kind } = kindOfCharacter(shape[index]!);
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    }
    let y = top;
    for (const [kind, events] of [...kinds].sort()) {
      const tall = (events / (to - from)) * BODY;
      pen.fillStyle = color(COLORS[kind] ?? "--line");
      pen.globalAlpha = kind === "message" ? 0.35 : 0.8;
      pen.fillRect(place * column, y, Math.max(column - (column > 3 ? 1 : 0), 1), tall);
      y += tall;
    }
  }
  pen.globalAlpha = 1;
}
