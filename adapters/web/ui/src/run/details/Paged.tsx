/** Which part of a list is shown, and the way to the others. */
import { number } from "../../core/format";
import { ProblemNote } from "../../parts/Problem";
import type { Window } from "../model";
import type { Earlier } from "./earlier";

interface Props {
  shown: Window;
  earlier: Earlier;
  what: string;
}

export function Paged({ shown, earlier, what }: Props) {
  const { start, total, items } = shown;
  const end = start + items.length;
  return (
    <>
      <p class="paged">
        <span>
          {what} {total === 0 ? "0" : `${number(start + 1)} to ${number(end)}`} of {number(total)}
        </span>
        {start > 0 && <button onClick={() => earlier.before(start)}>Earlier</button>}
        {end < total && <button onClick={() => earlier.after(end)}>Later</button>}
        {end < total && <button onClick={() => earlier.end()}>Last</button>}
      </p>
      {earlier.problem.value && <ProblemNote problem={earlier.problem.value} />}
    </>
  );
}
