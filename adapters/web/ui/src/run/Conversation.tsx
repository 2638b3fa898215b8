/** The conversation at the version that is looked at. */
import "./conversation/conversation.css";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { useAction } from "../core/actions";
import { cutsOf } from "../core/cuts";
import { count, number } from "../core/format";
import { LongText } from "../parts/LongText";
import { ProblemNote } from "../parts/Problem";
import { Text } from "../parts/Text";
import { ConversationPane } from "./conversation/pane";
import { isMarkdown, toggleMarkdown } from "./conversation/settings";
import { OtherCard } from "./conversation/ToolCard";
import { TurnView } from "./conversation/TurnView";
import { useRun, type Window } from "./model";

export function Conversation() {
  const model = useRun();
  const pane = useMemo(() => new ConversationPane(model), [model]);
  useEffect(() => () => pane.close(), [pane]);
  useAction("markdown", toggleMarkdown);
  const window = pane.window.value;
  return (
    <section class="conversation" aria-label="Conversation">
      <header class="pane-head">
        <h2>Conversation</h2>
        <span class="figures">{window && count(window.total, "turn")}</span>
        <button aria-pressed={isMarkdown.value} onClick={toggleMarkdown} title="Show texts as Markdown (m)">
          Markdown
        </button>
      </header>
      <Turns pane={pane} />
    </section>
  );
}

function Turns({ pane }: { pane: ConversationPane }) {
  const { model } = pane;
  const window = pane.window.value;
  const box = useRef<HTMLDivElement>(null);
  useSight(pane, box);
  const problem = pane.older.loaded.value.problem ?? model.turns.loaded.value.problem;
  return (
    <div class="turns" ref={box} tabIndex={0} role="region" aria-label="Turns" data-version={window?.version}>
      {problem && <ProblemNote problem={problem} again={() => (pane.range.peek() ? pane.older : model.turns).again()} />}
      {!window && !problem && <Skeletons />}
      <div class="content">{window && <Loaded pane={pane} window={window} />}</div>
    </div>
  );
}

function Loaded({ pane, window }: { pane: ConversationPane; window: Window }) {
  const { model } = pane;
  const marks = pane.marks.value;
  const turns = pane.turns.value;
  const others = pane.others.value;
  const isNow = marks.version === window.version;
  const after = window.total - pane.end;
  const elsewhere = [...marks.turns.keys()].filter((place) => isNow && (place < pane.first || place >= pane.end));
  return (
    <>
      {isNow && marks.isAnother && <p class="notice new">Another evaluation begins here, with a conversation of its own.</p>}
      {isNow && marks.superseded.length > 0 && <p class="notice new">This event set an evaluation aside: its messages no longer count.</p>}
      <System window={window} run={model.run} isNew={isNow && marks.isSystemNew} />
      {pane.first > 0 && (
        <button class="wide" onClick={() => pane.earlier()}>
          {count(pane.first, "earlier turn")}
        </button>
      )}
      {window.total === 0 && <p class="empty">No message was recorded up to this event.</p>}
      {turns.map((turn) => (
        <TurnView key={turn.place} turn={turn} at={window.version} marks={isNow ? marks : { ...marks, version: 0 }} />
      ))}
      {elsewhere.length > 0 && (
        <p class="notice new">
          This event changed turn {number(elsewhere[0]! + 1)}. <button onClick={() => pane.goTo(elsewhere[0]!)}>Show it</button>
        </p>
      )}
      {others.map((call) => (
        <OtherCard key={`call${call.number}`} call={call} isNew={isNow && marks.calls.has(call.number - 1)} />
      ))}
      {after > 0 && (
        <div class="wide-choices">
          <button onClick={() => pane.later()}>{count(after, "later turn")}</button>
          <button onClick={() => pane.toEnd()}>To the last turn</button>
        </div>
      )}
    </>
  );
}

/** The system prompt, folded. */
function System({ window, run, isNew }: { window: Window; run: string; isNew: boolean }) {
  const system = typeof window.rest.system === "string" ? window.rest.system : "";
  const total = cutsOf(window).get("/rest/system")?.total;
  if (system === "" && total === undefined) return null;
  return (
    <details class={`system${isNew ? " new" : ""}`}>
      <summary>
        <span class="label">System prompt</span>
        {isNew && <span class="badge">added by this event</span>}
        <Text value={system.slice(0, 200)} class="start" />
      </summary>
      <LongText value={system} total={total} source={{ run, at: window.version, pointer: "/history/system" }} />
    </details>
  );
}

function Skeletons() {
  return (
    <div role="status" aria-label="The conversation is loading">
      {[0, 1, 2, 3].map((place) => (
        <p key={place}>
          <span class="skeleton" />
        </p>
      ))}
    </div>
  );
}

/** Keep in sight what the event added; else stay at the end if it was there. */
function useSight(pane: ConversationPane, box: { current: HTMLDivElement | null }): void {
  const isAtEnd = useRef(true);
  const version = pane.window.value?.version ?? 0;
  const marked = pane.marks.value.version === version ? version : 0;
  const range = pane.range.value;
  useEffect(() => {
    // Its own: when this is called the pane may have left the page.
    const element = box.current!;
    let before = 0;
    const scrolled = () => {
      const { scrollTop, clientHeight, scrollHeight } = element;
      // Cards may have grown since it was scrolled: it has left the end only if it went up.
      const isDown = scrollTop >= before;
      isAtEnd.current = scrollTop + clientHeight >= scrollHeight - 8 || (isAtEnd.current && isDown);
      before = scrollTop;
    };
    // What is loaded later makes cards higher; while a person is at them, nothing moves.
    const grown = new ResizeObserver(() => {
      if (isAtEnd.current && !element.contains(document.activeElement)) element.scrollTop = element.scrollHeight;
    });
    element.addEventListener("scroll", scrolled, { passive: true });
    grown.observe(element.querySelector(".content")!);
    return () => {
      element.removeEventListener("scroll", scrolled);
      grown.disconnect();
    };
  }, []);
  useLayoutEffect(() => {
    const element = box.current!;
    const added = element.querySelector<HTMLElement>(".new");
    if (added) {
      isAtEnd.current = false;
      bring(element, added);
    } else if (isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [version, marked, pane.turns.value.length]);
  useLayoutEffect(() => {
    if (range) box.current!.scrollTop = range.isForward ? 0 : box.current!.scrollHeight;
  }, [range, pane.window.value]);
}

function bring(box: HTMLElement, added: HTMLElement): void {
  const frame = box.getBoundingClientRect();
  const place = added.getBoundingClientRect();
  const isHigher = place.top < frame.top;
  const isLower = place.bottom > frame.bottom;
  if (isHigher || place.height > frame.height) box.scrollTop += place.top - frame.top - 8;
  else if (isLower) box.scrollTop += place.bottom - frame.bottom + 8;
}
