/** One change: its path, the value before and after. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Schemas } from "../../core/api";
import { number } from "../../core/format";
import { useLoader } from "../../core/loading";
import { JsonTree } from "../../parts/JsonTree";
import { JsonValue } from "../../parts/json/JsonValue";
import { Tree } from "../../parts/json/tree";
import { cutsBelow, isContainer, preview, type Cut, type Cuts } from "../../parts/json/values";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useChoice } from "../blame/choice";
import { stateValue } from "../blame/values";
import { useRun } from "../model";
import { TextDiff } from "./TextDiff";

type One = Schemas["Change"];

const WORDS: Record<One["op"], string> = { add: "added", remove: "removed", replace: "changed" };
const SYMBOLS: Record<One["op"], string> = { add: "+", remove: "−", replace: "~" };
/** Texts that are longer are compared, or shown in lines. */
const LONG = 60;

interface Props {
  change: One;
  place: number;
  version: number;
  cut: Cut[] | undefined;
}

export function Change({ change, place, version, cut }: Props) {
  const model = useRun();
  const choice = useChoice();
  const { op, path, was, value } = change;
  const shown = { path, place, version, cut };
  return (
    <li class={`change change-${op} ${model.chosen.value === path ? "chosen" : ""}`}>
      <button class="path" title="Choose it: which event set it before, pin it" onClick={() => choice.choose(path, true)}>
        <span class="op" title={WORDS[op]}>
          {SYMBOLS[op]}
        </span>
        <Text value={path} />
      </button>
      {isLong(was) && typeof value === "string" ? (
        <Compared {...shown} was={was} value={value} />
      ) : (
        <>
          {op !== "add" && <Side {...shown} side="was" value={was} />}
          {op !== "remove" && <Side {...shown} side="value" value={value} />}
        </>
      )}
    </li>
  );
}

interface Where {
  path: string;
  place: number;
  version: number;
  cut: Cut[] | undefined;
}

function isLong(text: unknown): text is string {
  return typeof text === "string" && (text.length > LONG || text.includes("\n"));
}

/** Two texts compared; of very long ones more on demand, as much as is loaded at once. */
function Compared({ was, value, path, place, version, cut }: Where & { was: string; value: string }) {
  const model = useRun();
  const isWanted = useSignal(false);
  const longest = Math.max(0, ...(cut ?? []).map((one) => (isOf(one, place) ? one.total : 0)));
  const texts = useLoader(
    () => (isWanted.value ? { version } : null),
    (_, abort) => Promise.all([version - 1, version].map((at) => stateValue(model.run, at, path, 0, 1, abort))),
  );
  const { value: loaded, problem } = texts.loaded.value;
  const [before = was, after = value] = loaded?.map((one) => one.text ?? "") ?? [];
  const compared = Math.max(before.length, after.length);
  return (
    <>
      <TextDiff was={before} value={after} />
      {problem && <ProblemNote problem={problem} again={() => texts.again()} />}
      {compared < longest && (
        <p class="quiet">
          The first {number(compared)} of {number(longest)} characters are compared.{" "}
          {!isWanted.value && <button onClick={() => (isWanted.value = true)}>Compare more</button>}
          {loaded && "The state has all of them."}
        </p>
      )}
    </>
  );
}

function isOf(cut: Cut, place: number): boolean {
  return cut.pointer === `/changes/${place}/was` || cut.pointer === `/changes/${place}/value`;
}

function Side({ side, value, ...where }: Where & { side: "was" | "value"; value: unknown }) {
  const cuts = cutsBelow(where.cut, `/changes/${where.place}/${side}`, where.path);
  const text = preview(value, where.path, cuts);
  const isLarge = (isContainer(value) && text === "") || isLong(value) || cuts.size > 0;
  return (
    <div class={`side side-${side}`}>
      <span class="name">{side === "was" ? "before" : "after"}</span>
      {isLarge ? <Folded {...where} side={side} value={value} cuts={cuts} /> : <JsonValue value={value} preview={text} />}
    </div>
  );
}

/** A large value as a folded tree; what was cut in it is loaded from the state before, or after. */
function Folded({ path, version, side, value, cuts }: Where & { side: "was" | "value"; value: unknown; cuts: Cuts }) {
  const model = useRun();
  const choice = useChoice();
  const tree = useMemo(() => {
    const at = side === "was" ? version - 1 : version;
    const made = new Tree((pointer, from, limit, abort) => stateValue(model.run, at, pointer, from, limit, abort), path, false);
    made.show(value, cuts);
    return made;
  }, [value]);
  useEffect(() => () => tree.close(), [tree]);
  const isNow = side === "value";
  return (
    <JsonTree
      tree={tree}
      label={isNow ? "After" : "Before"}
      name={path.slice(path.lastIndexOf("/") + 1)}
      chosen={isNow ? model.chosen.value : ""}
      onChoose={isNow ? (pointer, isMeant) => choice.choose(pointer, isMeant) : undefined}
    />
  );
}
