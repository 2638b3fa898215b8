/** Two runs side by side, aligned, at the first difference. */
import { useEffect, useMemo } from "preact/hooks";
import "../compare/compare.css";
import { CompareHead } from "../compare/CompareHead";
import { CompareRows } from "../compare/CompareRows";
import { CompareContext, CompareModel } from "../compare/model";
import { EventDifferences, StatePane } from "../compare/RowPanes";
import { useAction, useWaiting } from "../core/actions";
import { Panes } from "../parts/Panes";
import { ProblemNote } from "../parts/Problem";

export function CompareScreen({ first, second }: { first: string; second: string }) {
  const model = useMemo(() => new CompareModel(first, second), [first, second]);
  useEffect(() => () => model.close(), [model]);
  useAction("event.next", () => model.step(1));
  useAction("event.previous", () => model.step(-1));
  useAction("first", () => model.jumpTo(0));
  useAction("last", () => model.toEnd());
  useAction("difference.next", () => void model.toDifference(true));
  useAction("difference.previous", () => void model.toDifference(false));
  const problem = model.rows.problem.value;
  useWaiting(!model.overview.value && !problem);
  return (
    <CompareContext.Provider value={model}>
      <main class="screen compare">
        <CompareHead />
        {problem && <ProblemNote problem={problem} again={() => model.begin()} />}
        {!(problem && !model.overview.value) && (
          <>
            <CompareRows />
            <Panes name="compare" widths={[45, 55]}>
              <EventDifferences />
              <StatePane />
            </Panes>
          </>
        )}
      </main>
    </CompareContext.Provider>
  );
}
