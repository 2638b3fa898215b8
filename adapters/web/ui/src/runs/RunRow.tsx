/** A run in the list. */
import { href, jump } from "../core/address";
import { duration, number, shortId, when } from "../core/format";
import { kindOfCharacter } from "../core/kinds";
import { Text } from "../parts/Text";
import type { Row } from "./model";

const SYMBOLS: Record<string, string> = {
  running: "▷",
  waiting: "‖",
  completed: "■",
  failed: "✕",
  parked: "✕",
  abandoned: "✕",
};

interface Props {
  row: Row;
  isChosen: boolean;
  isFresh: boolean;
  isCompared: boolean;
}

export function RunRow({ row: { info, detail, depth }, isChosen, isFresh, isCompared }: Props) {
  const isDead = info.status === "running" && detail?.worker === "dead";
  const classes = ["run-row", isChosen && "current", isFresh && "fresh"].filter(Boolean).join(" ");
  // A row is a choice of a list: a link in it would be a control in a control.
  const opened = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey) window.open(href({ screen: "run", run: info.run_id }));
    else jump({ screen: "run", run: info.run_id, at: null, q: "", pin: "" });
  };
  return (
    <div class={classes} role="option" aria-selected={isChosen} onClick={opened}>
      <span class={`status status-${info.status}`} title={isDead ? "No worker has this run: recover it" : info.status}>
        {SYMBOLS[info.status]} {isDead ? "no worker" : info.status}
      </span>
      <span class="what" style={{ paddingLeft: `${depth * 14}px` }}>
        {depth > 0 && <span title={`${info.kind} of ${info.parent} at ${info.parent_version}`}>└ </span>}
        <span class="name">
          <Text value={info.agent || info.prompt || "run"} /> <code>{shortId(info.run_id)}</code>
        </span>
        {isCompared && <span class="compared"> compared</span>}
      </span>
      <SmallShape shape={detail?.shape ?? ""} />
      <span class="figure">{number(info.version)}</span>
      <span class="figure">{detail?.tokens != null ? number(detail.tokens) : ""}</span>
      <span class="figure">{detail?.seconds != null ? duration(detail.seconds) : ""}</span>
      <span class="time" title={info.started_at}>
        {when(info.started_at)}
      </span>
      <span class="tags">
        {Object.entries(info.tags).map(([key, value]) => (
          <span class="tag" key={key}>
            <Text value={value ? `${key}=${value}` : key} />
          </span>
        ))}
      </span>
    </div>
  );
}

/** A run in at most 60 characters: what stands out is a symbol, the rest a mark of its kind. */
function SmallShape({ shape }: { shape: string }) {
  const parts: { kind: string; text: string }[] = [];
  for (const character of shape) {
    const { kind, symbol } = kindOfCharacter(character);
    const text = ["failure", "doubt", "resume", "wait"].includes(kind) ? symbol : "▪";
    const last = parts.at(-1);
    if (last?.kind === kind) last.text += text;
    else parts.push({ kind, text });
  }
  return (
    <span class="small-shape" aria-hidden="true">
      {parts.slice(0, 40).map((part, place) => (
        <span key={place} class={`kind-${part.kind}`}>
          {part.text}
        </span>
      ))}
    </span>
  );
}
