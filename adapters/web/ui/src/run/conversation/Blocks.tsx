/** Blocks of a turn that are not calls: text, media, results without their call. */
import { signal } from "@preact/signals";
import { Problem, request } from "../../core/api";
import { LongText } from "../../parts/LongText";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useRun } from "../model";
import { useMemo } from "preact/hooks";
import { Outside } from "./Outside";
import { markdown } from "./settings";
import type { Placed } from "./turns";

/** A text field of a block, whole or in slices. */
export function BlockText({ part, field, at, class: name }: { part: Placed; field: "text" | "arguments" | "content"; at: number; class?: string }) {
  const model = useRun();
  const source = { run: model.run, at, pointer: `${part.pointer}/${field}` };
  return <LongText value={part.block[field] ?? ""} total={part.total(field)} source={source} class={name} isBoxed={field !== "text"} />;
}

export function TextBlock({ part, at }: { part: Placed; at: number }) {
  const isWhole = part.total("text") === undefined;
  const Markdown = markdown.value;
  if (Markdown && isWhole) return <Markdown text={part.block.text ?? ""} />;
  return <BlockText part={part} field="text" at={at} />;
}

/** A result whose call is not shown. */
export function LooseResult({ part, at }: { part: Placed; at: number }) {
  return (
    <div class="result">
      <span class="label">
        {part.block.is_error ? "error of" : "result of"} <Text value={part.block.call_id ?? ""} class="mono" />
      </span>
      <BlockText part={part} field="content" at={at} />
    </div>
  );
}

/** Media are never loaded: what they are, and a way to get them. */
export function MediaBlock({ part }: { part: Placed }) {
  const { modality = "media", mime, url, blob, prompt_hint: hint } = part.block;
  return (
    <div class="media">
      <span class="label">
        <Text value={modality} />
        {mime && (
          <>
            {" "}
            <Text value={mime} class="mono" />
          </>
        )}
      </span>{" "}
      {hint && <Text value={hint} lines />}
      {blob && <Download blob={blob} />}
      {url && <Outside href={url} />}
    </div>
  );
}

// The session's cookie counts only with a header, which a plain link does not send.
function Download({ blob }: { blob: string }) {
  const problem = useMemo(() => signal<Problem | null>(null), [blob]);
  async function get(): Promise<void> {
    try {
      const answer = await request(`/v1/blobs/${encodeURIComponent(blob)}`);
      const address = URL.createObjectURL(await answer.blob());
      const link = document.createElement("a");
      link.href = address;
      link.download = blob.replace("sha256:", "");
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
      problem.value = null;
    } catch (error) {
      problem.value = error as Problem;
    }
  }
  return (
    <>
      <a
        href={`/v1/blobs/${encodeURIComponent(blob)}`}
        onClick={(event) => {
          event.preventDefault();
          void get();
        }}
      >
        Download
      </a>{" "}
      <Text value={blob} class="mono blob" />
      {problem.value && <ProblemNote problem={problem.value} />}
    </>
  );
}
