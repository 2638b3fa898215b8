/** Text of a run that may be shortened: what is left out is loaded slice by slice, one shown at a time. */
import "./text.css";
import { useRef, useState } from "preact/hooks";
import { Problem, request } from "../core/api";
import { number } from "../core/format";
import { ProblemNote } from "./Problem";
import { Text } from "./Text";

/** Where the whole text is: a JSON Pointer into the state of a run at a version. */
export interface Source {
  run: string;
  at: number;
  pointer: string;
}

interface Slice {
  start: number;
  text: string;
}

interface Props {
  value: string;
  /** How many characters there are in all, if these are not all. */
  total?: number;
  source: Source;
  class?: string;
  /** Whether a tall text is in a box of its own that scrolls. */
  isBoxed?: boolean;
}

// As many characters as the server gives at once.
const STEP = 20_000;

/** Characters as the server counts them: code points. */
function length(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

export async function slice(source: Source, from: number): Promise<Slice> {
  const query = new URLSearchParams({ pointer: source.pointer, at: String(source.at), from: String(from) });
  const answer = await request(`/v1/runs/${source.run}/value?${query}`);
  const found = (await answer.json()) as { start: number; text?: string };
  return { start: found.start, text: found.text ?? "" };
}

export function LongText({ value, total, source, class: name = "", isBoxed = false }: Props) {
  if (total === undefined) return <Boxed value={value} name={name} isBoxed={isBoxed} />;
  return <Slices key={`${source.run}${source.at}${source.pointer}`} {...{ value, total, source, name, isBoxed }} />;
}

const TALL = 800;
const LINES = 12;

function Boxed({ value, name, isBoxed }: { value: string; name: string; isBoxed: boolean }) {
  const text = <Text value={value} lines class={name} />;
  if (!isBoxed || (value.length < TALL && value.split("\n", LINES).length < LINES)) return text;
  return (
    <span class="boxed" role="group" aria-label="Long text" tabIndex={0}>
      {text}
    </span>
  );
}

interface SlicesProps {
  value: string;
  total: number;
  source: Source;
  name: string;
  isBoxed: boolean;
}

function Slices({ value, total, source, name, isBoxed }: SlicesProps) {
  const [shown, setShown] = useState<Slice>({ start: 0, text: value });
  const [problem, setProblem] = useState<Problem | null>(null);
  const latest = useRef(0);
  const end = shown.start + length(shown.text);

  async function load(from: number): Promise<void> {
    const mine = (latest.current += 1);
    try {
      const found = await slice(source, Math.max(0, from));
      if (mine === latest.current) setShown(found);
      setProblem(null);
    } catch (error) {
      setProblem(error as Problem);
    }
  }

  return (
    <>
      <Boxed key={shown.start} value={shown.text} name={name} isBoxed={isBoxed} />
      <span class="slices">
        <span>
          characters {number(shown.start + 1)} to {number(end)} of {number(total)}
        </span>
        {shown.start > 0 && <button onClick={() => void load(shown.start - STEP)}>Show what is before</button>}
        {end < total && <button onClick={() => void load(end)}>Show more</button>}
      </span>
      {problem && <ProblemNote problem={problem} />}
    </>
  );
}
