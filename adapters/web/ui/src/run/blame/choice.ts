/** The value that is chosen, and the event that set it. */
import { signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { jump } from "../../core/address";
import { Problem } from "../../core/api";
import type { RunModel } from "../model";
import { blamed, type Blamed } from "./values";

/** What is known of who set a value: asked for, found, or not. */
export interface Blame {
  pointer: string;
  at: number;
  event: Blamed | null;
  problem: Problem | null;
}

export class Choice {
  readonly blame = signal<Blame | null>(null);
  /** Where blame went away from, the last one last. */
  readonly left = signal<readonly { at: number | null; pointer: string }[]>([]);
  private underWay: AbortController | null = null;

  constructor(private readonly model: RunModel) {}

  /** Choose a value; if it is meant by itself, ask which event set it. */
  choose(pointer: string, isMeant: boolean): void {
    if (pointer === "") return;
    if (pointer !== this.model.chosen.peek()) this.cancel();
    this.model.chosen.value = pointer;
    if (isMeant) void this.ask();
  }

  forget(): void {
    this.cancel();
    this.model.chosen.value = "";
  }

  /** End what is asked for, and forget what was found. */
  cancel(): void {
    this.underWay?.abort();
    this.underWay = null;
    this.blame.value = null;
  }

  /** Go to the event that set the chosen value; it is asked for first if it is not known. */
  async go(): Promise<void> {
    if (this.model.chosen.peek() === "") return;
    const found = this.known() ?? (await this.ask());
    if (!found?.event || found.event.version === this.model.at.peek()) return;
    const from = { at: this.model.isFollowing.peek() ? null : this.model.at.peek(), pointer: found.pointer };
    this.left.value = [...this.left.peek(), from];
    this.model.jumpTo(found.event.version);
  }

  /** Come back from there. */
  back(): void {
    const last = this.left.peek().at(-1);
    if (!last) return;
    this.left.value = this.left.peek().slice(0, -1);
    this.model.chosen.value = last.pointer;
    jump({ at: last.at });
  }

  /** Which event set the chosen value at the version that is looked at. */
  async ask(): Promise<Blame | null> {
    const asked = { pointer: this.model.chosen.peek(), at: this.model.at.peek() };
    this.underWay?.abort();
    const abort = new AbortController();
    this.underWay = abort;
    this.blame.value = { ...asked, event: null, problem: null };
    let found: Blame;
    try {
      const event = await blamed(this.model.run, asked.pointer, asked.at, abort.signal);
      found = { ...asked, event, problem: null };
    } catch (error) {
      if (abort.signal.aborted) return null;
      const problem = error instanceof Problem ? error : new Problem(0, "page", "The page failed", String(error));
      found = { ...asked, event: null, problem };
    }
    if (abort.signal.aborted) return null;
    this.underWay = null;
    this.blame.value = found;
    return found;
  }

  private known(): Blame | null {
    const blame = this.blame.peek();
    const isOfThis = blame?.pointer === this.model.chosen.peek() && blame.at === this.model.at.peek();
    return isOfThis && blame.event ? blame : null;
  }
}

export const ChoiceContext = createContext<Choice | null>(null);

/** The choice of the run's screen that this is in. */
export function useChoice(): Choice {
  return useContext(ChoiceContext)!;
}
