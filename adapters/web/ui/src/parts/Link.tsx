/** A link within the page. */
import type { ComponentChildren } from "preact";
import { href, jump, type Address, type Screen } from "../core/address";

interface Props {
  to: Partial<Address> & { screen: Screen };
  class?: string;
  title?: string;
  children: ComponentChildren;
}

const ELSE: Partial<Address> = { run: "", other: "", event: "", at: null, tab: "changed", pin: "", q: "" };

export function Link({ to, children, ...rest }: Props) {
  function clicked(event: MouseEvent): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    jump({ ...ELSE, ...to });
  }
  return (
    <a href={href(to)} onClick={clicked} {...rest}>
      {children}
    </a>
  );
}
