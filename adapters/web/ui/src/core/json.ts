/** JSON whose integers keep their digits: those that a number of JavaScript can't hold stay as text. */

// Not in TypeScript's library yet. Without them, in older browsers, such integers are rounded.
declare global {
  interface JSON {
    parse(text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
    rawJSON?(text: string): object;
    isRawJSON?(value: unknown): boolean;
  }
}

const MANY_DIGITS = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** A value of JSON; `JSON.stringify` writes its integers as they were. */
export function parsed(text: string): unknown {
  // A second look at each value is only taken where there may be such an integer.
  if (!JSON.rawJSON || !MANY_DIGITS.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    const source = context?.source;
    if (typeof value !== "number" || Number.isSafeInteger(value) || !source || !INTEGER.test(source)) return value;
    return JSON.rawJSON!(source);
  });
}

/** The digits of an integer that was kept as text; "" for any other value. */
export function digitsOf(value: unknown): string {
  return JSON.isRawJSON?.(value) ? (value as { rawJSON: string }).rawJSON : "";
}
