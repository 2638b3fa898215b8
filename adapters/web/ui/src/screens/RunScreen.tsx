/** The screen of a run: the strip above, events, conversation and details below. */
import { useComputed } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { useAction, useWaiting } from "../core/actions";
import { DOUBTS, FAILURES, nearest, RESUMES, TURNS } from "../core/kinds";
import { Panes } from "../parts/Panes";
import { ProblemNote } from "../parts/Problem";
import { Conversation } from "../run/Conversation";
import { Details } from "../run/details/Details";
import { EventList } from "../run/EventList";
import { Lanes } from "../run/strip/Lanes";
import { RunContext, RunModel } from "../run/model";
import { Strip } from "../run/strip/Strip";
import { RunHead } from "../run/head/RunHead";

export function RunScreen({ run }: { run: string }) {
  const model = useMemo(() => new RunModel(run), [run]);
  useEffect(() => () => model.close(), [model]);
  useMoves(model);
  useWaiting(useComputed(() => model.head.value === 0 && !model.problem.value).value);
  if (model.problem.value && model.head.value === 0) {
    return (
      <main class="screen">
        <ProblemNote problem={model.problem.value} again={() => void model.refresh()} />
      </main>
    );
  }
  return (
    <RunContext.Provider value={model}>
      <main class="screen run">
        <RunHead />
        <Strip />
        <Lanes />
        <Panes name="run" widths={[32, 36, 32]}>
          <EventList />
          <Conversation />
          <Details />
        </Panes>
      </main>
    </RunContext.Provider>
  );
}

/** The keys that move through a run. */
function useMoves(model: RunModel): void {
  const toNearest = (characters: string, isForward: boolean) => () => {
    const version = nearest(model.shape.peek(), characters, model.at.peek(), isForward);
    if (version) model.jumpTo(version);
  };
  useAction("event.next", () => model.step(1));
  useAction("event.previous", () => model.step(-1));
  useAction("turn.next", toNearest(TURNS, true));
  useAction("turn.previous", toNearest(TURNS, false));
  useAction("failure.next", toNearest(FAILURES, true));
  useAction("failure.previous", toNearest(FAILURES, false));
  useAction("doubt.next", toNearest(DOUBTS, true));
  useAction("doubt.previous", toNearest(DOUBTS, false));
  useAction("resume.next", toNearest(RESUMES, true));
  useAction("resume.previous", toNearest(RESUMES, false));
  useAction("first", () => model.jumpTo(1));
  useAction("last", () => model.follow());
  useAction("live.pause", () => model.pause());
}
