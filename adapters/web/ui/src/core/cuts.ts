/** What an answer shortened: texts that go on, lists that have more, by their pointers. */
export interface Cut {
  pointer: string;
  kind: "text" | "list" | "object" | "depth";
  total: number;
}

export type Cuts = ReadonlyMap<string, Cut>;

/** The shortened values of an answer that was asked for with `cut=true`. */
export function cutsOf(answer: object | undefined): Cuts {
  const found = (answer as { cut?: Cut[] } | undefined)?.cut ?? [];
  return new Map(found.map((one) => [one.pointer, one]));
}
