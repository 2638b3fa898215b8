/** The tokens used up to the version: in all, by model, and by turn. */
import { ask, client } from "../../core/api";
import { number } from "../../core/format";
import { digitsOf } from "../../core/json";
import { useLoader } from "../../core/loading";
import { entriesOf, isContainer } from "../../parts/json/values";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useRun, type Window } from "../model";
import { Skeletons } from "../../parts/Skeletons";
import { useEarlier } from "./earlier";
import { Paged } from "./Paged";
import { useRested } from "./rest";

const FIGURES = ["calls", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "total_tokens"];
const NAMES = ["calls", "input", "cached", "output", "reason.", "total"];
const RECENT = 25;
/** Models that are listed: more are in the state. */
const MODELS = 20;

export function UsageTab() {
  const model = useRun();
  const rest = useRested(model.at);
  const load = (at: number, from: number, limit: number, signal: AbortSignal): Promise<Window> => {
    const params = { path: { run: model.run }, query: { at, from, limit, cut: true } };
    return ask(client.GET("/v1/runs/{run}/usage", { params, signal }));
  };
  const usage = useLoader(
    () => (rest.value > 0 ? { at: rest.value } : null),
    ({ at }, abort) => load(at, -RECENT, RECENT, abort),
  );
  const earlier = useEarlier(model.at, load);
  const { value, problem } = usage.loaded.value;
  if (problem) return <ProblemNote problem={problem} again={() => usage.again()} />;
  if (!value) return <Skeletons />;
  const isStale = value.version !== model.at.value;
  const turns = earlier.page.value ?? value;
  const { rest: other } = value;
  const models = entriesOf(field(other, "by_model"), "");
  const failed = field(other, "failed_calls");
  if (figure(field(other, "total"), "calls") === 0 && !failed) {
    return <p class="said">No model was called up to version {number(value.version)}.</p>;
  }
  return (
    <div class={isStale ? "stale" : ""} aria-busy={isStale}>
      <Table name="By model">
        {models.slice(0, MODELS).map((one) => (
          <Line key={one.name} name={one.name} of={one.value} />
        ))}
        <Line name="all" of={field(other, "total")} />
      </Table>
      {models.length > MODELS && <p class="quiet">{number(models.length - MODELS)} more models are in the state.</p>}
      {typeof failed === "number" && failed > 0 && <p>{number(failed)} calls of a model failed.</p>}
      {figure(field(other, "total"), "estimated_calls") > 0 && (
        <p>{number(figure(field(other, "total"), "estimated_calls"))} calls were estimated.</p>
      )}
      <Paged shown={turns} earlier={earlier} what="Turns" />
      <Table name="By turn">
        {turns.items.map((item, place) => (
          <Line key={turns.start + place} name={number((field(item, "turn") as number | undefined) ?? turns.start + place + 1)} of={item} />
        ))}
      </Table>
    </div>
  );
}

function field(item: unknown, name: string): unknown {
  return isContainer(item) && Object.hasOwn(item, name) ? (item as Record<string, unknown>)[name] : undefined;
}

function figure(item: unknown, name: string): number {
  const value = field(item, name);
  return typeof value === "number" || digitsOf(value) ? (value as number) : 0;
}

function Table({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <table class="figures tokens">
      <thead>
        <tr>
          <th>{name}</th>
          {NAMES.map((one) => (
            <th key={one} class="number">
              {one}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}

function Line({ name, of }: { name: string; of: unknown }) {
  return (
    <tr>
      <th scope="row" class="name">
        <Text value={name} />
      </th>
      {FIGURES.map((one) => (
        <td key={one} class="number">
          {number(figure(of, one))}
        </td>
      ))}
    </tr>
  );
}
