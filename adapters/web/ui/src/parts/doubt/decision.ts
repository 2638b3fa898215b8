/** A decision while it is made: what was typed stays until it is recorded, whatever is loaded meanwhile. */
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { ask, client, Problem, request } from "../../core/api";
import { cutsOf } from "../../core/cuts";
import { parsed } from "../../core/json";
import { asCall, standing, type Call, type Decision } from "./call";

/** How a decision stands: it is made, sent, recorded as a version, or was refused. */
export type Progress =
  | { kind: "open" }
  | { kind: "sending" }
  | { kind: "recorded"; version: number }
  | { kind: "refused"; problem: Problem }
  | { kind: "changed"; problem: Problem; call: Call };

const NAME = "turnledger.name";
export const decider = signal(localStorage.getItem(NAME) ?? "");

export function rememberDecider(name: string): void {
  decider.value = name;
  localStorage.setItem(NAME, name);
}

/** JSON text that is wrong, said in words; "" if it is right. */
export function jsonProblem(text: string, isObject: boolean): string {
  if (text.trim() === "") return isObject ? "All arguments are needed, as a JSON object." : "A value is needed, as JSON: null if it gave none.";
  try {
    const found: unknown = JSON.parse(text);
    if (!isObject || (typeof found === "object" && found !== null && !Array.isArray(found))) return "";
    return "Arguments are a JSON object.";
  } catch (error) {
    return `Not JSON: ${(error as Error).message}`;
  }
}

export class Draft {
  readonly choice = signal<Decision | null>(null);
  readonly value = signal("");
  readonly reason = signal("");
  readonly arguments = signal("");
  readonly progress = signal<Progress>({ kind: "open" });
  /** The version that was shown when the decision was begun, and how the call stood there. */
  version = 0;
  stood = "";
  /** Why it can't be sent yet; "" if it can. */
  readonly missing: ReadonlySignal<string>;
  /** The event that is appended, as JSON. */
  readonly event: ReadonlySignal<string>;
  private sent = { body: "", id: "" };
  private attempts: number;

  constructor(
    readonly run: string,
    readonly call: Call,
  ) {
    this.attempts = call.attempts ?? 0;
    this.arguments.value = call.edited_arguments || call.arguments || "{}";
    this.missing = computed(() => {
      const choice = this.choice.value;
      if (choice === null) return "Nothing is chosen.";
      if (choice === "completed") return jsonProblem(this.value.value, false);
      if (choice === "edit") return jsonProblem(this.arguments.value, true);
      const needsReason = choice === "failed" || choice === "deny";
      return needsReason && this.reason.value.trim() === "" ? "A reason is needed: the model is told it." : "";
    });
    this.event = computed(() => this.preview());
  }

  /** Begin with a choice, about the call as it is shown. */
  choose(choice: Decision, call: Call): void {
    if (this.choice.peek() === null) this.lookAt(call);
    this.choice.value = choice;
    if (this.progress.peek().kind === "refused") this.progress.value = { kind: "open" };
  }

  /** From now on the decision is about the call as it is here. */
  lookAt(call: Call): void {
    this.version = call.at;
    this.stood = standing(call);
    this.attempts = call.attempts ?? 0;
    this.progress.value = { kind: "open" };
  }

  forget(): void {
    this.choice.value = null;
    this.progress.value = { kind: "open" };
  }

  async send(): Promise<void> {
    if (this.missing.peek() !== "" || this.progress.peek().kind === "sending") return;
    this.progress.value = { kind: "sending" };
    try {
      const answer = await request(`/v1/runs/${this.run}/resolve`, {
        method: "POST",
        headers: { "Content-Type": "application/json", "If-Match": `"${this.version}"` },
        body: this.body(),
      });
      const { version } = (await answer.json()) as { version: number };
      this.progress.value = { kind: "recorded", version };
    } catch (error) {
      await this.refused(error as Problem);
    }
  }

  private async refused(problem: Problem): Promise<void> {
    this.progress.value = { kind: "refused", problem };
    if (!["call-changed", "call-not-found"].includes(problem.type)) return;
    try {
      const [call] = await callsNow(this.run, this.call.number);
      if (call) this.progress.value = { kind: "changed", problem, call };
    } catch {
      // What was refused is shown; what it is now could not be loaded.
    }
  }

  // Values stay the text that was typed: large numbers in it are not what JavaScript makes of them.
  private body(): string {
    const fields = this.fields();
    const id: [string, string] = ["event_id", JSON.stringify(this.idOf(object(fields)))];
    return object([...fields, id]);
  }

  private fields(): [string, string][] {
    const choice = this.choice.peek()!;
    const raw: [string, string][] = [
      ["call_id", JSON.stringify(this.call.call_id)],
      ["decision", JSON.stringify(choice)],
      ["by", JSON.stringify(decider.peek())],
    ];
    if (choice === "completed") raw.push(["value", this.value.peek()]);
    if (choice === "failed" || choice === "deny") raw.push(["text", JSON.stringify(this.reason.peek())]);
    if (choice === "edit") raw.push(["arguments", this.arguments.peek()]);
    return raw;
  }

  /** The id of the event: the same for the same decision, so that it can be sent again. */
  private idOf(body: string): string {
    if (this.sent.body !== body) this.sent = { body, id: newId() };
    return this.sent.id;
  }

  private preview(): string {
    const choice = this.choice.value;
    if (choice === null || this.missing.value !== "") return "";
    const by = decider.value;
    const data: [string, string][] = [["call_id", JSON.stringify(this.call.call_id)]];
    const isApproval = choice === "approve" || choice === "deny" || choice === "edit";
    const names = { completed: "completed", failed: "failed", retry: "retry", approve: "approved", deny: "denied", edit: "edited" };
    data.push(["decision", JSON.stringify(names[choice])]);
    if (choice === "completed") data.push(["value", this.value.value.trim()]);
    if (choice === "failed" || choice === "deny") data.push(["text", JSON.stringify(this.reason.value)]);
    if (choice === "edit") data.push(["arguments", JSON.stringify(JSON.stringify(parsed(this.arguments.value)))]);
    if (by) data.push(["decided_by", JSON.stringify(by)]);
    if (this.attempts) data.push(["attempt", String(this.attempts)]);
    const lines = data.map(([name, value]) => `    ${JSON.stringify(name)}: ${value}`).join(",\n");
    const type = isApproval ? "approval.decided" : "tool_call.decided";
    const id = this.idOf(object(this.fields()));
    return `{\n  "type": "${type}",\n  "event_id": "${id}",\n  "data": {\n${lines}\n  }\n}`;
  }
}

function object(fields: [string, string][]): string {
  return `{${fields.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
}

/** Calls as they are at the end of their run, from a number on. */
export async function callsNow(run: string, first: number, limit = 1, signal?: AbortSignal): Promise<Call[]> {
  const query = { from: first - 1, limit, cut: true };
  const found = await ask(client.GET("/v1/runs/{run}/tools", { params: { path: { run }, query }, signal, cache: "no-store" }));
  return found.items.map((item, place) => asCall(item, found.version, cutsOf(found), `/items/${place}`));
}

/** A UUID of version 7: its first 48 bits are the time in milliseconds. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const time = Date.now();
  for (let place = 0; place < 6; place++) bytes[place] = Math.floor(time / 2 ** (8 * (5 - place))) % 256;
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

const drafts = new Map<string, Draft>();
const MOST = 100;

/** Whether a decision about a call of the run was begun on this page, or is recorded. */
export function isBegun(run: string): boolean {
  return [...drafts.values()].some((draft) => draft.run === run && draft.choice.peek() !== null);
}

/** The decision about a call that is being made on this page. */
export function draftOf(run: string, call: Call): Draft {
  const key = `${run} ${call.number} ${call.attempts ?? 0}`;
  const draft = drafts.get(key) ?? new Draft(run, call);
  drafts.delete(key);
  drafts.set(key, draft);
  // The oldest that nothing was chosen in goes.
  for (const [old, one] of drafts) {
    if (drafts.size <= MOST) break;
    if (one.choice.peek() === null && old !== key) drafts.delete(old);
  }
  return draft;
}
