/** The state as a tree in windows: what is open stays open when another version is looked at. */
import { effect } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { number } from "../../core/format";
import { JsonTree } from "../../parts/JsonTree";
import { isWithin } from "../../parts/json/pointer";
import { Tree } from "../../parts/json/tree";
import type { Cut } from "../../parts/json/values";
import { useChoice } from "../blame/choice";
import { stateValue } from "../blame/values";
import { useRun, type Changes, type RunModel } from "../model";
import { rested } from "./rest";

/** After a step one window is loaded; the others in sight when the reader rests. */
const REST = 500;

/** The tree, and the version that its windows are of. */
class States {
  readonly tree: Tree;
  private version = 0;
  private before: Changes | null = null;
  private readonly stops: (() => void)[] = [];
  private timer = 0;

  constructor(model: RunModel) {
    const at = rested(model.at);
    this.tree = new Tree((pointer, from, limit, abort) => stateValue(model.run, this.version, pointer, from, limit, abort));
    this.tree.allowed = 0;
    this.stops.push(
      at.close,
      effect(() => {
        const { value, problem, isStale } = model.changes.loaded.value;
        const version = at.value.value;
        // After a step, what the event changed says which windows are the same as before.
        const isStep = Math.abs(version - this.version) === 1;
        if (version > 0 && (!isStep || !isStale || problem)) this.look(version, value ?? null);
      }),
    );
  }

  close(): void {
    clearTimeout(this.timer);
    for (const stop of this.stops) stop();
    this.tree.close();
  }

  private look(at: number, changes: Changes | null): void {
    const here = changes?.version === at ? changes : null;
    if (at === this.version) {
      this.before = here ?? this.before;
      return;
    }
    const between = at === this.version + 1 ? here : at === this.version - 1 ? this.before : null;
    this.version = at;
    this.before = here;
    this.tree.allowed = 1;
    this.tree.outdate(between ? touchedBy(between) : undefined);
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.tree.allow(), REST);
  }
}

function touchedBy(changes: Changes & { cut?: Cut[] }): (pointer: string) => boolean {
  const isWhole = changes.complete !== false && !changes.cut?.some((one) => one.pointer === "/changes");
  if (!isWhole) return () => true;
  return (pointer) => changes.changes.some(({ path }) => isWithin(path, pointer) || isWithin(pointer, path));
}

export function StateTree() {
  const model = useRun();
  const choice = useChoice();
  const states = useMemo(() => new States(model), [model]);
  useEffect(() => () => states.close(), [states]);
  const { value } = model.changes.loaded.value;
  const touched = value && value.version === model.at.value ? touchedBy(value) : () => false;
  if (model.at.value === 0) return <p class="said">The run has no event yet.</p>;
  return (
    <div class="fill">
      <JsonTree
        tree={states.tree}
        label={`State at version ${number(model.at.value)}`}
        name="state"
        chosen={model.chosen.value}
        onChoose={(pointer, isMeant) => choice.choose(pointer, isMeant)}
        isMarked={(pointer) => pointer !== "" && touched(pointer)}
      />
    </div>
  );
}
