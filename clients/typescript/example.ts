// What an event says, by its type: the compiler knows the fields of each.
import type { components } from "./turnledger";

type Item = components["schemas"]["Item"];

export function line(item: Item): string {
  switch (item.type) {
    case "run.started":
      return `${item.data.agent ?? "a run"} started`;
    case "tool_call.started":
      return `${item.data.name} is called`;
    case "tool_call.failed":
      return `${item.data.name} failed: ${item.data.error_message}`;
    case "blob":
      return `${item.data.content.length} characters of base64`;
    default:
      return item.type;
  }
}

export const started: Item = { type: "run.started", data: { tags: { customer: "acme" } } };
