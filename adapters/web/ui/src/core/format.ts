/** Numbers and times as people read them. */
import { digitsOf } from "./json";

const NUMBER = new Intl.NumberFormat("en-US");
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

export function number(value: number): string {
  // A sum of counts may be larger than a number of JavaScript can hold.
  return NUMBER.format((digitsOf(value) || value) as number);
}

/** "1 event", "2,000 events". */
export function count(value: number, one: string, many = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  if (value < 1_000_000) return `${(value / 1000).toFixed(1)} kB`;
  return `${(value / 1_000_000).toFixed(1)} MB`;
}

export function clock(time: string): string {
  return CLOCK.format(new Date(time));
}

/** The day if it is not today, and the time. */
export function when(time: string): string {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? CLOCK.format(date) : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.round(seconds / 86400)} days`;
}

/** The end of a run's id, which tells runs apart: ids begin with their time. */
export function shortId(id: string): string {
  return id.length > 12 ? id.slice(-12) : id;
}
