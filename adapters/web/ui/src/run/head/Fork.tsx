/** Fork here: a new run that goes on from this version, with the next event as it was, edited, or without it. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { jump } from "../../core/address";
import { useAction } from "../../core/actions";
import { ask, client, Problem, request, type Schemas } from "../../core/api";
import { number } from "../../core/format";
import { newId } from "../../core/ids";
import { parsed } from "../../core/json";
import { useLoader } from "../../core/loading";
import { Dialog } from "../../parts/Dialog";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useRun, type RunModel } from "../model";

export function Fork() {
  const shown = useSignal(0);
  const model = useRun();
  const show = () => {
    shown.value = model.at.peek();
  };
  useAction("fork", show);
  return (
    <>
      <button onClick={show}>Fork here</button>
      {shown.value > 0 && (
        <Dialog title={`Fork at event ${number(shown.value)}`} close={() => (shown.value = 0)} wide>
          <ForkPoint key={shown.value} at={shown.value} move={(at) => (shown.value = at)} close={() => (shown.value = 0)} />
        </Dialog>
      )}
    </>
  );
}

interface PointProps {
  at: number;
  move: (at: number) => void;
  close: () => void;
}

/** Whether a fork can begin here; if not, why, and where it can. */
function ForkPoint({ at, move, close }: PointProps) {
  const { run } = useRun();
  const point = useLoader(
    () => ({ at }),
    (query, abort) => ask(client.GET("/v1/runs/{run}/fork", { params: { path: { run }, query }, signal: abort })),
  );
  const { value, problem } = point.loaded.value;
  if (problem) return <ProblemNote problem={problem} again={point.again} />;
  if (!value) return <p role="status">Looking whether a fork can begin here…</p>;
  if (value.allowed) return <ForkForm at={at} close={close} />;
  const others = [value.before, value.after].filter((one) => one != null);
  return (
    <>
      <p role="alert">
        <Text value={value.reason} lines />
      </p>
      {others.map((one) => (
        <button key={one} onClick={() => move(one)}>
          Fork at event {number(one)}
        </button>
      ))}
    </>
  );
}

function ForkForm({ at, close }: { at: number; close: () => void }) {
  const model = useRun();
  // Made once: sending the same again is safe.
  const ids = useMemo(() => ({ child: newId(), event: newId() }), []);
  const text = useSignal<string | null>(null);
  const type = useSignal("");
  const together = useSignal(0);
  const problem = useSignal<Problem | null>(null);
  const isSending = useSignal(false);

  async function loadNext(): Promise<void> {
    try {
      const response = await request(`/v1/runs/${model.run}/events/${at + 1}`);
      const event = parsed(await response.text()) as Schemas["RecordLine"];
      type.value = event.type;
      together.value = lastTogether(model, at + 1, event.recorded_at);
      text.value = JSON.stringify(event.data, null, 2);
    } catch (error) {
      problem.value = error as Problem;
    }
  }

  async function send(): Promise<void> {
    problem.value = null;
    let events: unknown[] = [];
    if (text.value !== null) {
      try {
        events = [{ type: type.value, data: parsed(text.value), event_id: ids.event }];
      } catch (error) {
        problem.value = new Problem(0, "page", "The event is not JSON", String(error));
        return;
      }
    }
    isSending.value = true;
    try {
      await request(`/v1/runs/${model.run}/fork`, {
        method: "POST",
        body: JSON.stringify({ child: ids.child, at, events }),
        headers: { "Content-Type": "application/json" },
      });
      close();
      jump({ screen: "run", run: ids.child, at: null, pin: "", q: "" });
    } catch (error) {
      problem.value = error as Problem;
    }
    isSending.value = false;
  }

  return (
    <>
      <p>
        The new run shares events 1 to {number(at)}. This run is not changed. No handler is called: run your agent on the
        new run to go on from there.
      </p>
      {text.value === null ? (
        at < model.head.value && (
          <p>
            <button onClick={() => void loadNext()}>Edit event {number(at + 1)} for the new run</button>
          </p>
        )
      ) : (
        <label>
          Event {number(at + 1)} of the new run, <Text value={type.value} />
          <textarea
            rows={14}
            spellcheck={false}
            value={text.value}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
        </label>
      )}
      {together.value > at + 1 && (
        <p>
          The events up to {number(together.value)} were recorded together with it, such as the message that gives the
          model a tool's result. The new run does not have them.
        </p>
      )}
      {problem.value && <Refused problem={problem.value} />}
      <button autofocus disabled={isSending.value} onClick={() => void send()}>
        {text.value === null ? "Fork" : "Fork with this event"}
      </button>
    </>
  );
}

/** The last event that was recorded in one commit with this one, as far as they are loaded. */
function lastTogether(model: RunModel, version: number, time: string): number {
  let last = version;
  while (model.events.get(last + 1)?.recorded_at === time) last += 1;
  return last;
}

/** Why the server refused it, with the place in the event that it names. */
function Refused({ problem }: { problem: Problem }) {
  const errors = (problem.members.errors ?? []) as { pointer?: string; detail?: string }[];
  return (
    <>
      <ProblemNote problem={problem} />
      <ul>
        {errors.slice(0, 20).map((one, place) => (
          <li key={place}>
            <code>
              <Text value={one.pointer ?? ""} />
            </code>{" "}
            <Text value={one.detail ?? ""} />
          </li>
        ))}
      </ul>
    </>
  );
}
