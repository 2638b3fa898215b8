/** Requests for values of a run: windows of them, the events that changed them, the one that set them. */
import { ask, client, type Schemas } from "../../core/api";
import { cutsBelow, type Cuts, type ValueWindow } from "../../parts/json/values";

export type Blamed = Schemas["ShownEvent"];

/** An event that changed a value, and the value before and after it, with what was cut in these. */
export type ValueChange = Schemas["ChangedValue"] & { cuts: { was: Cuts; value: Cuts } };

export interface ValueChanges {
  changes: ValueChange[];
  next: number | null;
}

/** A window of a value of the state. */
export function stateValue(run: string, at: number, pointer: string, from: number, limit: number, abort: AbortSignal): Promise<ValueWindow> {
  const params = { path: { run }, query: { pointer, at, from, limit } };
  return ask(client.GET("/v1/runs/{run}/value", { params, signal: abort }));
}

/** A window of a value of an event's data. */
export function eventValue(run: string, version: number, pointer: string, from: number, limit: number, abort: AbortSignal): Promise<ValueWindow> {
  const params = { path: { run, version }, query: { pointer, from, limit } };
  return ask(client.GET("/v1/runs/{run}/events/{version}/value", { params, signal: abort }));
}

/** An event with its data, but for what was cut. */
export type ShownEvent = Schemas["ShownEvent"];

export function shownEvent(run: string, version: number, abort: AbortSignal): Promise<ShownEvent> {
  const params = { path: { run, version }, query: { cut: true } };
  return ask(client.GET("/v1/runs/{run}/events/{version}", { params, signal: abort }));
}

/** The events that changed a value, newest first. */
export async function valueChanges(run: string, pointer: string, before: number | null, limit: number, abort: AbortSignal): Promise<ValueChanges> {
  const query = before === null ? { pointer, limit } : { pointer, limit, before };
  const found = await ask(client.GET("/v1/runs/{run}/value/changes", { params: { path: { run }, query }, signal: abort }));
  const cuts = (place: number) => ({
    was: cutsBelow(found.cut, `/changes/${place}/was`, ""),
    value: cutsBelow(found.cut, `/changes/${place}/value`, ""),
  });
  return { next: found.next, changes: found.changes.map((change, place) => ({ ...change, cuts: cuts(place) })) };
}

/** The event that set a value. */
export function blamed(run: string, pointer: string, at: number, abort: AbortSignal): Promise<Blamed> {
  const params = { path: { run }, query: { pointer, at, cut: true } };
  return ask(client.GET("/v1/runs/{run}/blame", { params, signal: abort }));
}
