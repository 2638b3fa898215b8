/** The rows of a comparison: an event of the first run at the left, of the second at the right. */
import { number } from "../core/format";
import { kindOfType } from "../core/kinds";
import { Rows } from "../parts/Rows";
import { Text } from "../parts/Text";
import { useComparison, type Row } from "./model";

const ROW = 22;
const KINDS: Record<Row["kind"], { symbol: string; meaning: string }> = {
  same: { symbol: "=", meaning: "the same in both" },
  changed: { symbol: "≠", meaning: "changed" },
  only_first: { symbol: "−", meaning: "only in the first" },
  only_second: { symbol: "+", meaning: "only in the second" },
};

/** What a row is, in words. */
export function meaningOf(row: Row): string {
  const { meaning } = KINDS[row.kind];
  return row.bookkeeping && row.kind !== "same" ? `${meaning}, bookkeeping` : meaning;
}

export function CompareRows() {
  const model = useComparison();
  const total = model.overview.value?.total ?? 0;
  return (
    <section class="compared-rows" aria-label="Events of both runs">
      <Rows
        count={total}
        height={ROW}
        current={total ? model.at.value : -1}
        label="Events of both runs"
        onSight={(first, last) => total && model.rows.want(first, last, total)}
        row={(place) => <ComparedRow place={place} />}
      />
    </section>
  );
}

function ComparedRow({ place }: { place: number }) {
  const model = useComparison();
  void model.rows.changed.value;
  const found = model.rows.get(place);
  const isCurrent = place === model.at.value;
  const classes = ["compared-row", isCurrent && "current"];
  if (found) classes.push(`row-${found.row.kind}`, found.row.bookkeeping && "bookkeeping");
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      role="option"
      aria-selected={isCurrent}
      aria-posinset={place + 1}
      aria-setsize={model.overview.value?.total}
      title={found && meaningOf(found.row)}
      onClick={() => model.jumpTo(place)}
    >
      {found ? <Both row={found.row} /> : <span class="skeleton" />}
    </div>
  );
}

function Both({ row }: { row: Row }) {
  return (
    <>
      <Side version={row.first} row={row} text={row.text} />
      <span class="row-kind">
        <span aria-hidden="true">{KINDS[row.kind].symbol}</span>
        <span class="unseen">{meaningOf(row)}</span>
      </span>
      <Side version={row.second} row={row} text={row.kind === "changed" ? changedText(row) : row.text} />
    </>
  );
}

function Side({ version, row, text }: { version?: number | null; row: Row; text: string }) {
  if (version == null) return <span class="side-none" />;
  const kind = kindOfType(row.tag);
  return (
    <span class={`event kind-${kind.kind}`}>
      <span class="version">{number(version)}</span>
      <span class="symbol" aria-hidden="true">
        {kind.symbol}
      </span>
      <span class="type">
        <Text value={row.tag} />
      </span>
      <span class="said">
        <Text value={text} />
      </span>
    </span>
  );
}

const SHOWN = 3;
const LONGEST = 100;

/** What the second run's event has instead, in one line. */
function changedText(row: Row): string {
  const parts = row.changes!.slice(0, SHOWN).map(({ op, path, value }) => {
    if (op === "remove") return `${path} is not there`;
    return `${path} ${typeof value === "string" ? value.slice(0, LONGEST) : JSON.stringify(value)?.slice(0, LONGEST)}`;
  });
  return parts.join(" · ");
}
