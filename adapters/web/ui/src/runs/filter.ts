/** The filter of the list of runs, as text: `status:waiting agent:demo/settle tag:team=a 41f2`. */

export type Status = "running" | "waiting" | "completed" | "failed" | "parked" | "abandoned";
export const STATUSES: readonly Status[] = ["running", "waiting", "completed", "failed", "parked", "abandoned"];

export interface Filter {
  status?: Status;
  agent?: string;
  prompt?: string;
  tag?: string[];
  id?: string;
  since?: string;
  until?: string;
  parent?: string;
}

const WORD = /(?:([a-z]+):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))/g;

export interface Parsed {
  filter: Filter;
  /** What of the text is no filter, and why. */
  wrong: string;
}

export function parseFilter(text: string): Parsed {
  const filter: Filter = {};
  const wrong: string[] = [];
  for (const [whole, name, quoted, plain] of text.matchAll(WORD)) {
    const value = quoted === undefined ? plain! : quoted.replaceAll(/\\(.)/g, "$1");
    if (name === "status") {
      const status = STATUSES.find((one) => one === value);
      if (status) filter.status = status;
      else wrong.push(`status is one of ${STATUSES.join(", ")}`);
    } else if (name === "agent" || name === "prompt") filter[name] = value;
    else if (name === "tag") filter.tag = [...(filter.tag ?? []), value];
    else if (name === "since" || name === "until") {
      const time = new Date(value);
      if (Number.isNaN(time.getTime())) wrong.push(`${name} is a time, such as ${name}:2026-01-31`);
      else filter[name] = time.toISOString();
    } else if (name === "parent" || name === "id" || name === undefined) {
      if (/^[0-9A-Fa-f-]{1,36}$/.test(value)) filter[name ?? "id"] = value;
      else wrong.push(`${whole} is no part of a run's id; others are status:, agent:, prompt:, tag:, since:, until:`);
    } else wrong.push(`${name}: is no filter`);
  }
  return { filter, wrong: wrong.join("; ") };
}

/** The text with one filter set, or taken out if it is set so. */
export function toggled(text: string, name: string, value: string): string {
  const word = `${name}:${/[\s"\\]/.test(value) ? `"${value.replaceAll(/["\\]/g, "\\$&")}"` : value}`;
  const words = [...text.matchAll(WORD)].map((match) => match[0]);
  if (words.includes(word)) return words.filter((one) => one !== word).join(" ");
  const others = name === "tag" ? words : words.filter((one) => !one.startsWith(`${name}:`));
  return [...others, word].join(" ");
}
