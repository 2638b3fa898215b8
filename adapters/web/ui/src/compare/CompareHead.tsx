/** The lines above a comparison: which runs, how many differences, and the way through them. */
import { count, number, shortId } from "../core/format";
import { Link } from "../parts/Link";
import { Text } from "../parts/Text";
import { useComparison, type Overview } from "./model";

export function CompareHead() {
  const model = useComparison();
  const known = model.overview.value;
  const infos = model.infos.loaded.value.value;
  return (
    <header class="compare-head">
      <h1>Compare</h1>
      <Run name="first" run={model.first} info={infos?.[0]} />
      <Run name="second" run={model.second} info={infos?.[1]} />
      <span class="figures">
        {known && (
          <output>
            row {number(model.at.value + 1)} of {number(known.total)}
          </output>
        )}
      </span>
      <span role="status">{known && <Found known={known} at={model.at.value} />}</span>
      <span class="buttons">
        <button aria-label="Previous difference" title="Previous difference (X)" onClick={() => void model.toDifference(false)}>
          ‹ previous
        </button>
        <button aria-label="Next difference" title="Next difference (x)" onClick={() => void model.toDifference(true)}>
          next ›
        </button>
      </span>
    </header>
  );
}

function Run({ name, run, info }: { name: string; run: string; info: { agent?: string; prompt?: string; status?: string } | undefined }) {
  return (
    <span class="compared-run">
      {name}{" "}
      <Link to={{ screen: "run", run }} title={run}>
        <Text value={info?.agent || info?.prompt || "run"} /> <code>{shortId(run)}</code>
      </Link>{" "}
      {info?.status && <span class={`status status-${info.status}`}>{info.status}</span>}
    </span>
  );
}

function Found({ known, at }: { known: Overview; at: number }) {
  const model = useComparison();
  if (model.isSearching.value) return <>looking for it…</>;
  const { differences, isComplete, shared } = known;
  const together = shared > 0 && `, ${count(shared, "event")} shared`;
  if (differences.length === 0) return <>The runs are the same{together}</>;
  const place = differences.indexOf(at);
  const total = `${number(differences.length)}${isComplete ? "" : "+"}`;
  return (
    <>
      {place >= 0 ? `difference ${number(place + 1)} of ${total}` : `${total} ${differences.length === 1 ? "difference" : "differences"}`}
      {together}
    </>
  );
}
