/** What the runs have in common, to filter by. */
import { address, jump } from "../core/address";
import { ask, client, type Schemas } from "../core/api";
import { number } from "../core/format";
import { useLoader } from "../core/loading";
import { Text } from "../parts/Text";
import { parseFilter, toggled } from "./filter";

const SHOWN = 8;

export function Facets() {
  const facets = useLoader(
    () => parseFilter(address.value.q).filter,
    async (query, abort) => (await ask(client.GET("/v1/facets", { params: { query }, signal: abort }))) as Schemas["Facets"],
  );
  const found = facets.loaded.value.value;
  if (!found) return <aside class="facets" aria-label="Filters" />;
  return (
    <aside class="facets" aria-label="Filters">
      <Facet title="status" name="status" values={found.statuses} />
      <Facet title="agent" name="agent" values={found.agents} />
      <Facet title="prompt" name="prompt" values={found.prompts} />
      {Object.entries(found.tags).map(([key, values]) => (
        <Facet key={key} title={key} name="tag" prefix={`${key}=`} values={values} />
      ))}
      {!found.complete && <p class="quiet">Counted over the newest 10,000 runs.</p>}
    </aside>
  );
}

interface Props {
  title: string;
  name: string;
  prefix?: string;
  values: Record<string, number>;
}

function Facet({ title, name, prefix = "", values }: Props) {
  const entries = Object.entries(values).sort((a, b) => b[1] - a[1]);
  if (entries.length === 0) return null;
  const text = address.value.q;
  return (
    <fieldset>
      <legend>
        <Text value={title} />
      </legend>
      {entries.slice(0, SHOWN).map(([value, runs]) => {
        const next = toggled(text, name, prefix + value);
        return (
          <button key={value} aria-pressed={next.length < text.length} onClick={() => jump({ q: next })}>
            <Text value={value || "(none)"} />
            <span class="figure">{number(runs)}</span>
          </button>
        );
      })}
    </fieldset>
  );
}
