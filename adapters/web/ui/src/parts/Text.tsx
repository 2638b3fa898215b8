/** Text of a run, isolated from what is around it, with unsafe characters as marks. */
import { useState } from "preact/hooks";
import { number } from "../core/format";
import { pieces } from "../core/text";

// A piece of text that is longer is shown in parts: a browser lays out one long line slowly.
const LONGEST = 4000;
// Marks of line breaks and tabs: written out on one line, but nothing to warn of.
const USUAL = /^(?:\\[nrt])+$/;

interface Props {
  value: string;
  /** Line breaks stay; else the text is on one line. */
  lines?: boolean;
  class?: string;
}

export function Text({ value, lines = false, class: name = "" }: Props) {
  const [shown, setShown] = useState(LONGEST);
  const part = value.length > shown ? value.slice(0, shown) : value;
  const rest = value.length - part.length;
  return (
    <bdi class={`text ${lines ? "lines" : "line"} ${name}`}>
      {pieces(part, lines).map((piece, place) =>
        piece.isMark ? (
          <span key={place} class={USUAL.test(piece.text) ? "mark usual" : "mark"} title="A character that is written out">
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
      {rest > 0 && lines && (
        <button class="more" onClick={() => setShown(shown * 4)}>
          {number(rest)} more characters
        </button>
      )}
      {rest > 0 && !lines && "…"}
    </bdi>
  );
}
