/** The width of an element, as it changes. */
import { useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

export function useWidth(box: RefObject<HTMLElement | null>): number {
  const width = useSignal(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      width.value = box.current?.clientWidth ?? 0;
    });
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  return width.value;
}
