/** Text of a run: control, invisible and direction characters are shown as marks, as the command line does. */

// The same set as adapters/terminal_text.py; a test compares the two.
export const UNSAFE =
  "\\u0000-\\u001f\\u007f-\\u009f" +
  "\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb" +
  "\\u{e0000}-\\u{e007f}" +
  "\\ud800-\\udfff";
const SHORT: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const FIND = new RegExp(`[${UNSAFE}]`, "gu");

/** A piece of text: as it is, or a character that is written out. */
export interface Piece {
  text: string;
  isMark: boolean;
}

/** The pieces of a text; with `lines`, line breaks and tabs stay as they are. */
export function pieces(text: string, lines = false): Piece[] {
  const found: Piece[] = [];
  let after = 0;
  for (const match of text.matchAll(FIND)) {
    if (lines && (match[0] === "\n" || match[0] === "\t")) continue;
    if (match.index > after) found.push({ text: text.slice(after, match.index), isMark: false });
    found.push({ text: writtenOut(match[0]), isMark: true });
    after = match.index + match[0].length;
  }
  if (after < text.length) found.push({ text: text.slice(after), isMark: false });
  return found;
}

/** The text on one line with every such character written out. */
export function visible(text: string): string {
  return text.replace(FIND, writtenOut);
}

function writtenOut(character: string): string {
  const code = character.codePointAt(0)!;
  const hex = code.toString(16);
  if (SHORT[character]) return SHORT[character];
  if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
