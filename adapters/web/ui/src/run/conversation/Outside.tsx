/** An address outside the page, as text; a link only if it is http or https. */
import { Text } from "../../parts/Text";

export function Outside({ href }: { href: string }) {
  const text = <Text value={href} lines class="mono" />;
  if (!/^https?:\/\//i.test(href)) return <>({text})</>;
  return (
    <a href={href} target="_blank" rel="noreferrer noopener">
      {text}
    </a>
  );
}
