/** Two texts compared: by words, or by lines where they are long. */
import { diffLines, diffWordsWithSpace } from "diff";
import { useMemo } from "preact/hooks";
import { number } from "../../core/format";
import { Text } from "../../parts/Text";

const BY_WORDS = 4000;
/** Steps that a comparison may take; texts that differ more are shown one after the other. */
const MOST_EDITS = 2000;
/** Pieces that are shown, and characters of what is the same around a change. */
const MOST_PIECES = 60;
const AROUND = 120;

interface Piece {
  value: string;
  added: boolean;
  removed: boolean;
}

function compared(was: string, value: string): Piece[] {
  const isShort = was.length + value.length <= BY_WORDS;
  const options = { maxEditLength: MOST_EDITS, timeout: 200 };
  const found = isShort ? diffWordsWithSpace(was, value, options) : diffLines(was, value, options);
  return found ?? [
    { value: was, removed: true, added: false },
    { value, removed: false, added: true },
  ];
}

/** What is the same, but for its middle. */
function Same({ text, isFirst, isLast }: { text: string; isFirst: boolean; isLast: boolean }) {
  const before = isFirst ? 0 : AROUND;
  const after = isLast ? 0 : AROUND;
  const skipped = text.length - before - after;
  if (skipped <= AROUND) return <Text value={text} lines />;
  return (
    <>
      <Text value={text.slice(0, before)} lines />
      <span class="skipped"> {number(skipped)} characters are the same </span>
      <Text value={text.slice(text.length - after)} lines />
    </>
  );
}

export function TextDiff({ was, value }: { was: string; value: string }) {
  const pieces = useMemo(() => compared(was, value), [was, value]);
  if (was === value) return <p class="quiet">The same as far as it is shown.</p>;
  const shown = pieces.slice(0, MOST_PIECES);
  return (
    <div class="text-diff" aria-label="Text compared">
      {shown.map((piece, place) => {
        if (piece.added) return <ins key={place}><Text value={piece.value} lines /></ins>;
        if (piece.removed) return <del key={place}><Text value={piece.value} lines /></del>;
        return <Same key={place} text={piece.value} isFirst={place === 0} isLast={place === pieces.length - 1} />;
      })}
      {pieces.length > shown.length && <p class="quiet">The texts differ in more places: the state has them.</p>}
    </div>
  );
}
