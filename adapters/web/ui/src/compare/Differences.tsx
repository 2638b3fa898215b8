/** A list of differences: where, and the value in the first run and in the second. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Schemas } from "../core/api";
import { number } from "../core/format";
import { JsonTree } from "../parts/JsonTree";
import { JsonValue } from "../parts/json/JsonValue";
import { Tree, type Load } from "../parts/json/tree";
import { cutsBelow, isContainer, preview, type Cut, type Cuts } from "../parts/json/values";
import { Text } from "../parts/Text";
import { TextDiff } from "../run/details/TextDiff";

type Change = Schemas["Change"];

const SHOWN = 20;
const LONG = 60;
const WORDS: Record<Change["op"], string> = { add: "only in the second", remove: "only in the first", replace: "changed" };
const SYMBOLS: Record<Change["op"], string> = { add: "+", remove: "−", replace: "≠" };

interface Props {
  label: string;
  changes: readonly Change[];
  cut: readonly Cut[] | undefined;
  /** Loads what was shortened of a value of the first run, and of the second; without, it can't be. */
  first?: Load;
  second?: Load;
}

export function Differences({ label, changes, ...rest }: Props) {
  const [from, setFrom] = useState(0);
  const last = Math.min(from + SHOWN, changes.length);
  return (
    <>
      {from > 0 && <button onClick={() => setFrom(from - SHOWN)}>{number(from)} before</button>}
      <ol class="changes-list" aria-label={label}>
        {changes.slice(from, last).map((change, place) => (
          <Difference key={from + place} change={change} place={from + place} {...rest} />
        ))}
      </ol>
      {last < changes.length && <button onClick={() => setFrom(last)}>{number(changes.length - last)} more</button>}
    </>
  );
}

interface OneProps extends Omit<Props, "label" | "changes"> {
  change: Change;
  place: number;
}

function Difference({ change, place, cut, first, second }: OneProps) {
  const { op, path, was, value } = change;
  const cuts = (name: string) => cutsBelow(cut, `/changes/${place}/${name}`, path);
  const isWhole = cuts("was").size + cuts("value").size === 0;
  return (
    <li class={`change change-${op}`}>
      <p class="path">
        <span class="op" title={WORDS[op]}>
          {SYMBOLS[op]}
        </span>
        <Text value={path} />
      </p>
      {isLong(was) && typeof value === "string" && isWhole ? (
        <TextDiff was={was} value={value} />
      ) : (
        <>
          {op !== "add" && <Side name="first" path={path} value={was} cuts={cuts("was")} load={first} />}
          {op !== "remove" && <Side name="second" path={path} value={value} cuts={cuts("value")} load={second} />}
        </>
      )}
    </li>
  );
}

interface SideProps {
  name: "first" | "second";
  path: string;
  value: unknown;
  cuts: Cuts;
  load: Load | undefined;
}

function Side({ name, path, value, cuts, load }: SideProps) {
  const text = preview(value, path, cuts);
  const isLarge = (isContainer(value) && text === "") || isLong(value) || cuts.size > 0;
  return (
    <div class={`side side-${name === "first" ? "was" : "value"}`}>
      <span class="name">{name}</span>
      {isLarge ? <Folded name={name} path={path} value={value} cuts={cuts} load={load} /> : <JsonValue value={value} preview={text} />}
    </div>
  );
}

function Folded({ name, path, value, cuts, load }: SideProps) {
  const tree = useMemo(() => {
    const made = new Tree(load ?? NO_MORE, path, false);
    made.show(value, cuts);
    return made;
  }, [value]);
  useEffect(() => () => tree.close(), [tree]);
  return <JsonTree tree={tree} label={`In the ${name} run`} name={path.slice(path.lastIndexOf("/") + 1)} />;
}

const NO_MORE: Load = () => Promise.reject(new Error("open the run at this event to see all of it"));

function isLong(value: unknown): value is string {
  return typeof value === "string" && (value.length > LONG || value.includes("\n"));
}
