/** Rows of which only those in sight are there. */
import { useVirtualizer } from "@tanstack/react-virtual";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  count: number;
  height: number;
  /** The row that is kept in sight; -1 for none. */
  current: number;
  label: string;
  row: (place: number) => ComponentChildren;
  /** Which rows are in sight, from and to. */
  onSight?: (first: number, last: number) => void;
}

// Browsers lay out nothing beyond some ten million pixels: longer lists are scrolled in proportion.
const TALLEST = 8_000_000;

export function Rows({ count, height, current, label, row, onSight }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => Math.min(height, TALLEST / Math.max(count, 1)),
    overscan: 8,
  });
  const items = rows.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => onSight?.(first, last), [first, last, count]);
  useEffect(() => {
    if (current < 0 || current >= count) return;
    // A step scrolls by a row; after a jump, what is around the row is in sight too.
    const { startIndex, endIndex } = rows.range ?? { startIndex: 0, endIndex: -2 };
    const isNear = current >= startIndex - 1 && current <= endIndex + 1;
    rows.scrollToIndex(current, { align: isNear ? "auto" : "center" });
  }, [current, count]);
  // What stands above grows and shrinks: a row that was in sight stays there.
  const tall = rows.scrollRect?.height ?? 0;
  const before = useRef(0);
  useEffect(() => {
    const top = rows.scrollOffset ?? 0;
    const place = (current / Math.max(count, 1)) * rows.getTotalSize();
    const wasInSight = place >= top - height && place <= top + before.current;
    before.current = tall;
    if (wasInSight && current >= 0 && current < count) rows.scrollToIndex(current, { align: "auto" });
  }, [tall]);
  return (
    <div class="rows" ref={box} role="listbox" aria-label={label} tabIndex={0}>
      <div class="all" style={{ height: `${rows.getTotalSize()}px` }}>
        {items.map((item) => (
          <div class="place" key={item.key} style={{ transform: `translateY(${item.start}px)`, height: `${height}px` }}>
            {row(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
