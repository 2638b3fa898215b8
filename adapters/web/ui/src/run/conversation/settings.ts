/** Whether texts are shown as Markdown: off until it is chosen, and remembered. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";

const STORE = "turnledger.markdown";
export const isMarkdown = signal(false);
/** What shows Markdown, once it is wanted and loaded. */
export const markdown = signal<ComponentType<{ text: string }> | null>(null);

function set(isOn: boolean): void {
  isMarkdown.value = isOn;
  if (!isOn) markdown.value = null;
  else {
    void import("./Markdown").then(({ Markdown }) => {
      if (isMarkdown.peek()) markdown.value = Markdown;
    });
  }
}

export function toggleMarkdown(): void {
  set(!isMarkdown.peek());
  localStorage.setItem(STORE, isMarkdown.peek() ? "on" : "off");
}

if (localStorage.getItem(STORE) === "on") set(true);
