/** Kinds of events: the character of the shape, a colour class and a symbol for each type. */
import table from "./kinds.json";

export interface Kind {
  character: string;
  /** The colour's class: `kind-model`. */
  kind: string;
  symbol: string;
  meaning: string;
  types: string[];
}

export const KINDS: readonly Kind[] = table;
const UNKNOWN = KINDS[KINDS.length - 1]!;
const byType = new Map(KINDS.flatMap((kind) => kind.types.map((type) => [type, kind] as const)));
const byCharacter = new Map(KINDS.map((kind) => [kind.character, kind] as const));

export function kindOfType(type: string): Kind {
  return byType.get(type) ?? UNKNOWN;
}

export function kindOfCharacter(character: string): Kind {
  return byCharacter.get(character) ?? UNKNOWN;
}

/** The characters that stand out on the strip, and that keys go to. */
export const FAILURES = "XxEMT";
export const DOUBTS = "?";
export const RESUMES = "+";
/** Where a turn begins: the model is called. */
export const TURNS = "m";

/** The nearest version after (or before) `at` whose character is one of these; 0 for none. */
export function nearest(shape: string, characters: string, at: number, isForward: boolean): number {
  if (isForward) {
    for (let version = at + 1; version <= shape.length; version++) {
      if (characters.includes(shape[version - 1]!)) return version;
    }
  } else {
    for (let version = Math.min(at - 1, shape.length); version >= 1; version--) {
      if (characters.includes(shape[version - 1]!)) return version;
    }
  }
  return 0;
}
