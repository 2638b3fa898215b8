/** A JSON value as a tree: only the rows in sight are there, and long lists are loaded in windows. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useId, useRef } from "preact/hooks";
import { JsonRow } from "./json/JsonRow";
import { parentOf } from "./json/pointer";
import type { Row, Tree } from "./json/tree";
import "./json/json.css";

const ROW = 20;

interface Props {
  tree: Tree;
  label: string;
  /** The name of the outermost value. */
  name: string;
  /** The pointer that is chosen. */
  chosen?: string;
  /** A value was chosen; `isMeant` if by itself, and not to look into it. */
  onChoose?: (pointer: string, isMeant: boolean) => void;
  isMarked?: (pointer: string) => boolean;
}

export function JsonTree({ tree, label, name, chosen = "", onChoose, isMarked = () => false }: Props) {
  void tree.changed.value;
  const rows = tree.rows();
  const cursor = Math.max(0, rows.findIndex((row) => keyOf(row) === tree.cursor.value));
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    getItemKey: (place) => keyOf(rows[place]!),
    overscan: 6,
  });
  const items = virtual.getVirtualItems().filter((item) => item.index < rows.length);
  useEffect(() => tree.loadFirst(mostInSight(items.map((item) => rows[item.index]!.from))));

  function moved(to: number): void {
    const place = Math.max(0, Math.min(to, rows.length - 1));
    const row = rows[place];
    if (!row) return;
    tree.cursor.value = keyOf(row);
    virtual.scrollToIndex(place);
    if (row.kind === "value") onChoose?.(row.pointer, false);
  }

  function act(row: Row): void {
    if (row.kind === "value") onChoose?.(row.pointer, true);
    else if (row.kind === "problem") tree.again(row.pointer);
    else if (row.kind === "before" || row.kind === "after") tree.more(row.pointer, row.kind, row.slice!);
  }

  function clicked(row: Row): void {
    tree.cursor.value = keyOf(row);
    if (row.kind !== "value" || row.type === "text" || !row.canOpen) return act(row);
    tree.toggle(row.pointer);
    onChoose?.(row.pointer, false);
  }

  function pressed(event: KeyboardEvent): void {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = rows[cursor];
    if (!row) return;
    const isOpen = row.kind === "value" && row.isOpen;
    const canOpen = row.kind === "value" && row.canOpen;
    const keys: Record<string, () => void> = {
      ArrowDown: () => moved(cursor + 1),
      ArrowUp: () => moved(cursor - 1),
      Home: () => moved(0),
      End: () => moved(rows.length - 1),
      ArrowRight: () => (canOpen && !isOpen ? tree.toggle(row.pointer) : isOpen && moved(cursor + 1)),
      ArrowLeft: () => (isOpen ? tree.toggle(row.pointer) : moved(placeOf(rows, outerOf(row)))),
      Enter: () => act(row),
      " ": () => (canOpen ? tree.toggle(row.pointer) : act(row)),
    };
    const key = Object.hasOwn(keys, event.key) ? keys[event.key] : undefined;
    if (!key) return;
    event.preventDefault();
    key();
  }

  const hasCursor = items.some((item) => item.index === cursor);
  return (
    <div
      class="json"
      ref={box}
      role="tree"
      aria-label={label}
      aria-activedescendant={hasCursor ? `${id}-${cursor}` : undefined}
      tabIndex={0}
      onKeyDown={pressed}
    >
      <div class="all" role="none" style={{ height: `${virtual.getTotalSize()}px` }}>
        {items.map((item) => {
          const row = rows[item.index]!;
          return (
            <div
              class="place"
              role="none"
              key={item.key}
              data-index={item.index}
              ref={virtual.measureElement}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <JsonRow
                id={`${id}-${item.index}`}
                row={row}
                name={row.pointer === tree.top ? name : undefined}
                isAtCursor={item.index === cursor}
                isChosen={row.kind === "value" && row.pointer === chosen && chosen !== ""}
                isMarked={row.kind === "value" && isMarked(row.pointer)}
                isStale={tree.isStale(row.from)}
                onClick={() => clicked(row)}
                onToggle={() => tree.toggle(row.pointer)}
                onMore={(direction) => tree.more(row.pointer, direction, (row as { slice?: never }).slice!)}
              />
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** Windows by how many of their rows are in sight. */
function mostInSight(pointers: string[]): string[] {
  const counts = new Map<string, number>();
  for (const pointer of pointers) counts.set(pointer, (counts.get(pointer) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).map(([pointer]) => pointer);
}

function keyOf(row: Row): string {
  return row.kind === "value" ? row.pointer : `${row.kind} ${row.pointer}`;
}

/** The pointer of the row that a row is below. */
function outerOf(row: Row): string {
  return row.kind === "value" ? parentOf(row.pointer) : row.pointer;
}

function placeOf(rows: Row[], pointer: string): number {
  return rows.findIndex((row) => row.kind === "value" && row.pointer === pointer);
}
