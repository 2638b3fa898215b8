/** The tool calls at the version: how each stands, and which event made it so. */
import { ask, client } from "../../core/api";
import { clock, duration, number } from "../../core/format";
import { visible } from "../../core/text";
import { isContainer } from "../../parts/json/values";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useChoice } from "../blame/choice";
import { useRun } from "../model";
import { Skeletons } from "../../parts/Skeletons";
import { useEarlier } from "./earlier";
import { Paged } from "./Paged";

const SYMBOLS: Record<string, string> = {
  completed: "▣",
  failed: "✕",
  in_doubt: "?",
  pending: "…",
  running: "▷",
};

export function ToolsTab() {
  const model = useRun();
  const earlier = useEarlier(model.at, (at, from, limit, abort) => {
    const params = { path: { run: model.run }, query: { at, from, limit, cut: true } };
    return ask(client.GET("/v1/runs/{run}/tools", { params, signal: abort }));
  });
  const { value, problem, isStale } = model.tools.loaded.value;
  const shown = earlier.page.value ?? value;
  if (problem) return <ProblemNote problem={problem} again={() => model.tools.again()} />;
  if (!shown) return <Skeletons />;
  if (shown.total === 0) return <p class="said">No tool was called up to version {number(shown.version)}.</p>;
  return (
    <div class={isStale ? "stale" : ""} aria-busy={isStale}>
      <Paged shown={shown} earlier={earlier} what="Calls" />
      <table class="figures calls">
        <thead>
          <tr>
            <th class="number">call</th>
            <th>tool</th>
            <th>status</th>
            <th class="number">tries</th>
            <th>started</th>
            <th class="number">took</th>
          </tr>
        </thead>
        <tbody>
          {shown.items.map((item, place) => (
            <Call key={shown.start + place} place={shown.start + place} item={item} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A field of a call. Calls are ours, their fields have known names. */
function field(item: unknown, name: string): unknown {
  return isContainer(item) && Object.hasOwn(item, name) ? (item as Record<string, unknown>)[name] : undefined;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function Call({ item, place }: { item: unknown; place: number }) {
  const model = useRun();
  const choice = useChoice();
  const pointer = `/tools/${place}/status`;
  const status = text(field(item, "status"));
  const started = text(field(item, "started_at"));
  const ended = text(field(item, "ended_at"));
  const by = text(field(item, "decided_by"));
  const attempts = field(item, "attempts");
  return (
    <tr class={model.chosen.value === pointer ? "chosen" : ""}>
      <td class="number">{number(place + 1)}</td>
      <td class="name" title={visible(`${text(field(item, "name"))} ${text(field(item, "call_id"))}`)}>
        <Text value={text(field(item, "name"))} />
      </td>
      <td>
        <button class={`link call-${status}`} title="Which event made it so" onClick={() => choice.choose(pointer, true)}>
          <span aria-hidden="true">{SYMBOLS[status] ?? "·"}</span> <Text value={status.replaceAll("_", " ")} />
        </button>
        {by && (
          <div class="quiet">
            decided by <Text value={by} />
          </div>
        )}
      </td>
      <td class="number">{typeof attempts === "number" ? number(attempts) : "0"}</td>
      <td>{started && <time dateTime={started}>{clock(started)}</time>}</td>
      <td class="number">{started && ended ? duration((Date.parse(ended) - Date.parse(started)) / 1000) : ""}</td>
    </tr>
  );
}
