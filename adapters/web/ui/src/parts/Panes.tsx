/** Panes side by side whose widths can be changed, and are remembered. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

const STORE = "turnledger.panes";
const LEAST = 15;

function remembered(store: string, widths: readonly number[]): number[] {
  try {
    const found = JSON.parse(localStorage.getItem(store) ?? "");
    if (Array.isArray(found) && found.length === widths.length && found.every((part) => part >= LEAST)) return found;
  } catch {
    // Nothing was remembered.
  }
  return [...widths];
}

interface Props {
  /** What the widths are remembered by. */
  name: string;
  /** The widths at first, in percent. */
  widths: readonly number[];
  children: ComponentChildren[];
}

export function Panes({ name, widths: first, children }: Props) {
  const store = `${STORE}.${name}`;
  const [widths, setWidths] = useState(() => remembered(store, first));
  const box = useRef<HTMLDivElement>(null);

  function moved(place: number, by: number): void {
    const next = [...widths];
    const limited = Math.max(LEAST - next[place]!, Math.min(by, next[place + 1]! - LEAST));
    next[place]! += limited;
    next[place + 1]! -= limited;
    setWidths(next);
    localStorage.setItem(store, JSON.stringify(next));
  }

  function dragged(place: number, event: PointerEvent): void {
    if (!(event.buttons & 1)) return;
    moved(place, (event.movementX / box.current!.clientWidth) * 100);
  }

  const columns = widths.map((width) => `minmax(0, ${width}fr)`).join(" 5px ");
  return (
    <div class="panes" ref={box} style={{ gridTemplateColumns: columns }}>
      {children.flatMap((child, place) => [
        <div class="pane" key={`pane${place}`}>
          {child}
        </div>,
        place < children.length - 1 && (
          <div
            class="divider"
            key={`divider${place}`}
            role="separator"
            aria-orientation="vertical"
            aria-label="Width of the panes"
            aria-valuenow={Math.round(widths[place]!)}
            tabIndex={0}
            onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
            onPointerMove={(event) => dragged(place, event)}
            onKeyDown={(event) => {
              if (event.key === "ArrowLeft") moved(place, -2);
              if (event.key === "ArrowRight") moved(place, 2);
            }}
          />
        ),
      ])}
    </div>
  );
}
