/** The event: what the ledger has of it, and its data as a tree. */
import { useEffect, useMemo } from "preact/hooks";
import { bytes, number } from "../../core/format";
import { useLoader } from "../../core/loading";
import { JsonTree } from "../../parts/JsonTree";
import { Tree } from "../../parts/json/tree";
import { cutsBelow } from "../../parts/json/values";
import { Link } from "../../parts/Link";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { eventValue, shownEvent, type ShownEvent } from "../blame/values";
import type { EventItem } from "../events";
import { useRun } from "../model";
import { Skeletons } from "../../parts/Skeletons";
import { useRested } from "./rest";

export function EventPane() {
  const model = useRun();
  void model.events.changed.value;
  const at = model.at.value;
  const listed = model.events.get(at);
  const rest = useRested(model.at);
  const whole = useLoader(
    () => (rest.value > 0 ? { version: rest.value } : null),
    ({ version }, abort) => shownEvent(model.run, version, abort),
  );
  const { value, problem } = whole.loaded.value;
  if (at === 0) return <p class="said">The run has no event yet.</p>;
  return (
    <div class="event-pane">
      {listed ? <Known event={listed} /> : <Skeletons />}
      {problem && <ProblemNote problem={problem} again={() => whole.again()} />}
      {!problem && !value && <Skeletons />}
      {!problem && value && <Data whole={value} isStale={value.version !== at} />}
    </div>
  );
}

function Known({ event }: { event: EventItem }) {
  const model = useRun();
  const isShared = event.run_id !== model.run;
  return (
    <dl class="event-known">
      <dt>type</dt>
      <dd>
        <Text value={event.type} />
      </dd>
      <dt>version</dt>
      <dd>
        {number(event.version)} of the run, {number(event.position)} in the ledger
      </dd>
      <dt>recorded</dt>
      <dd>
        <time dateTime={event.recorded_at}>{event.recorded_at}</time>
      </dd>
      <dt>event</dt>
      <dd>
        <Link to={{ screen: "event", event: event.event_id }} title="The link to this event">
          <code>{event.event_id}</code>
        </Link>
      </dd>
      <dt>run</dt>
      <dd>
        {isShared ? (
          <>
            <Link to={{ screen: "run", run: event.run_id, at: event.version }}>
              <code>{event.run_id}</code>
            </Link>
            , which this one was forked from
          </>
        ) : (
          <code>{event.run_id}</code>
        )}
      </dd>
      <dt>digest</dt>
      <dd>
        <code>{event.digest}</code>
      </dd>
      <dt>size</dt>
      <dd>{bytes(event.bytes)}</dd>
    </dl>
  );
}

function Data({ whole, isStale }: { whole: ShownEvent; isStale: boolean }) {
  const model = useRun();
  const source = useMemo(() => ({ version: 0 }), []);
  const tree = useMemo(
    () => new Tree((pointer, from, limit, abort) => eventValue(model.run, source.version, pointer, from, limit, abort)),
    [model],
  );
  // The same tree for the next event: what is open stays open.
  useMemo(() => {
    source.version = whole.version;
    tree.show(whole.data, cutsBelow(whole.cut, "/data", ""));
  }, [whole]);
  useEffect(() => () => tree.close(), [tree]);
  return (
    <div class={`fill ${isStale ? "stale" : ""}`} aria-busy={isStale}>
      <JsonTree tree={tree} label="Data of the event" name="data" />
    </div>
  );
}
