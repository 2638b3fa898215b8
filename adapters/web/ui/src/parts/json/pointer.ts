/** JSON Pointers (RFC 6901). */

export function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** The pointer of an entry of the value at a pointer. */
export function below(pointer: string, name: string | number): string {
  return `${pointer}/${escaped(String(name))}`;
}

/** The pointer's parts, unescaped. */
export function partsOf(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Whether a pointer is another one, or names something in its value. */
export function isWithin(pointer: string, outer: string): boolean {
  return pointer === outer || pointer.startsWith(`${outer}/`);
}

/** The pointer of what a value is in; "" for the outermost. */
export function parentOf(pointer: string): string {
  return pointer.slice(0, Math.max(0, pointer.lastIndexOf("/")));
}
