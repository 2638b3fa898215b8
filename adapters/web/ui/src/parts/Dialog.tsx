/** A dialog over the page: Escape closes it, and the focus comes back to where it was. */
import "./dialog.css";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

export function Dialog({ title, close, children, wide = false }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = box.current!;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={wide ? "wide" : ""}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      // Keys that are pressed here are not the page's.
      onKeyDown={(event) => event.stopPropagation()}
      onClick={(event) => {
        if (event.target === box.current) close();
      }}
    >
      <header>
        <h2>{title}</h2>
        <button onClick={close} aria-label="Close">
          ✕
        </button>
      </header>
      <div class="content" tabIndex={0}>{children}</div>
    </dialog>
  );
}
