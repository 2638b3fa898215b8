/** Search in a run: hits are marked on the strip, newest found first, until all of it was searched. */
import "./search.css";
import { effect, signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { address, step } from "../../core/address";
import { useAction } from "../../core/actions";
import { ask, client, Problem, type Schemas } from "../../core/api";
import { count, number } from "../../core/format";
import { Text } from "../../parts/Text";
import { useRun, type RunModel } from "../model";

const PAGE = 200;
const MOST = 1000;
// A search begins when typing rests for so long.
const REST = 250;

interface Found {
  text: string;
  hits: Schemas["Hit"][];
  unreadable: number;
  /** Where it has come to: versions from here on were searched; 0: all were. */
  searchedTo: number;
  isOver: boolean;
  problem: Problem | null;
}

const NOTHING: Found = { text: "", hits: [], unreadable: 0, searchedTo: 0, isOver: true, problem: null };

class RunSearch {
  readonly found = signal<Found>(NOTHING);
  private abort = new AbortController();
  private timer = 0;
  private readonly stop: () => void;

  constructor(private readonly model: RunModel) {
    this.stop = effect(() => {
      const text = address.value.q;
      if (text === this.found.peek().text) return;
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.search(text), REST);
    });
  }

  close(): void {
    clearTimeout(this.timer);
    this.stop();
    this.abort.abort();
    this.mark([]);
  }

  private async search(text: string): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal: abort } = this.abort;
    let found: Found = { ...NOTHING, text, isOver: text === "", searchedTo: this.model.head.peek() + 1 };
    this.show(found);
    let before: number | undefined;
    while (!found.isOver && !abort.aborted) {
      try {
        const query = { q: text, limit: PAGE, ...(before !== undefined && { before }) };
        const path = { run: this.model.run };
        const page = await ask(client.GET("/v1/runs/{run}/search", { params: { path, query }, signal: abort }));
        const hits = [...found.hits, ...page.hits];
        const unreadable = found.unreadable + (page.unreadable?.length ?? 0);
        before = page.next ?? undefined;
        const isOver = before === undefined || hits.length >= MOST;
        found = { ...found, hits, unreadable, isOver, searchedTo: before ?? 0 };
      } catch (error) {
        found = { ...found, isOver: true, problem: error as Problem };
      }
      if (!abort.aborted) this.show(found);
    }
  }

  private show(found: Found): void {
    this.found.value = found;
    this.mark(found.hits.map((hit) => hit.version).reverse());
  }

  private mark(hits: number[]): void {
    const { hit: _before, ...others } = this.model.marks.peek();
    this.model.marks.value = hits.length ? { ...others, hit: hits } : others;
  }
}

export function SearchBar() {
  const model = useRun();
  const search = useMemo(() => new RunSearch(model), [model]);
  useEffect(() => () => search.close(), [search]);
  const box = useRef<HTMLInputElement>(null);
  const found = search.found.value;

  const go = (isForward: boolean) => () => {
    const at = model.at.peek();
    const versions = found.hits.map((hit) => hit.version);
    // Hits are newest first.
    const next = isForward ? versions.findLast((one) => one > at) : versions.find((one) => one < at);
    if (next) model.jumpTo(next);
  };
  useAction("search", () => box.current?.select());
  useAction("hit.next", go(true), found.hits.length > 0);
  useAction("hit.previous", go(false), found.hits.length > 0);

  const here = found.text === address.value.q && found.hits.find((hit) => hit.version === model.at.value);
  return (
    <div class="search" role="search">
      <input
        ref={box}
        type="search"
        aria-label="Search in the run"
        placeholder="Search  /"
        value={address.value.q}
        onInput={(event) => step({ q: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key !== "Escape" && event.key !== "Enter") return;
          // Else the browser empties the box, and the search stays.
          event.preventDefault();
          event.currentTarget.blur();
          if (event.key === "Enter" && found.hits[0]) (found.hits.some((hit) => hit.version > model.at.peek()) ? go(true) : go(false))();
        }}
      />
      {address.value.q && (
        <span class="hits" role="status">
          {/* While typing has not rested, what was found is of another text. */}
          {found.text === address.value.q ? said(found) : "searching…"}
          {here && (
            <span class="excerpt">
              {" "}
              <Text value={here.excerpt} />
            </span>
          )}
        </span>
      )}
    </div>
  );
}

function said(found: Found): string {
  if (found.problem) return `${found.problem.title}: ${found.problem.message}`;
  if (!found.isOver) return `searching… ${found.hits.length ? count(found.hits.length, "hit") : ""} from event ${number(found.searchedTo)} on`;
  const more = found.searchedTo > 0 ? ` shown, more exist before event ${number(found.searchedTo)}` : "";
  const unread = found.unreadable ? `; ${count(found.unreadable, "record")} can't be read` : "";
  if (found.hits.length === 0) return `not in this run${unread}`;
  return `${count(found.hits.length, "hit")}${more}${unread}`;
}
