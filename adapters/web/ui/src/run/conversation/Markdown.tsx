/** Markdown as nodes: the lexer's tokens become elements, and never markup; images stay text. */
import { lexer, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { Text } from "../../parts/Text";
import { Outside } from "./Outside";

// A text with more is shown as it was written: each token is a node of the page.
const MOST_TOKENS = 300;

export function Markdown({ text }: { text: string }) {
  const tokens = tokensOf(text);
  return tokens ? <div class="markdown">{tokens.map(block)}</div> : <Text value={text} lines />;
}

function tokensOf(text: string): Token[] | null {
  try {
    const found = lexer(text, { gfm: true });
    return countOf(found, 0) > MOST_TOKENS ? null : found;
  } catch {
    return null; // nested deeper than the lexer goes
  }
}

function countOf(tokens: readonly Token[], before: number): number {
  let count = before;
  for (const token of tokens) {
    if (count > MOST_TOKENS) return count;
    count += 1;
    for (const part of partsOf(token)) count = countOf(part, count);
  }
  return count;
}

function partsOf(token: Token): Token[][] {
  if (token.type === "table") {
    const table = token as Tokens.Table;
    return [table.header, ...table.rows].flatMap((row) => row.map((cell) => cell.tokens));
  }
  if (token.type === "list") return (token as Tokens.List).items.map((item) => item.tokens);
  return "tokens" in token && token.tokens ? [token.tokens] : [];
}

function block(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "hr":
      return <hr key={key} />;
    case "heading":
      // Headings of a text are not headings of the page.
      return (
        <p key={key} class="heading">
          {inline(token.tokens)}
        </p>
      );
    case "code":
      return (
        <pre key={key}>
          <Text value={token.text as string} lines />
        </pre>
      );
    case "blockquote":
      return <blockquote key={key}>{(token.tokens ?? []).map(block)}</blockquote>;
    case "list":
      return <List key={key} list={token as Tokens.List} />;
    case "table":
      return <Table key={key} table={token as Tokens.Table} />;
    case "paragraph":
      return <p key={key}>{inline(token.tokens)}</p>;
    case "text":
      return "tokens" in token && token.tokens ? <span key={key}>{inline(token.tokens)}</span> : plain(token.raw, key);
    default:
      return (
        <p key={key}>
          <Text value={token.raw} lines />
        </p>
      );
  }
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, place) => (
    <li key={place}>
      {item.task && (item.checked ? "☑ " : "☐ ")}
      {item.tokens.filter((token) => (token.type as string) !== "checkbox").map(block)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function Table({ table }: { table: Tokens.Table }) {
  return (
    <table>
      <thead>
        <tr>
          {table.header.map((cell, place) => (
            <th key={place}>{inline(cell.tokens)}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {table.rows.map((row, place) => (
          <tr key={place}>
            {row.map((cell, at) => (
              <td key={at}>{inline(cell.tokens)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function inline(tokens: readonly Token[] | undefined): ComponentChildren {
  return (tokens ?? []).map((token, key) => {
    switch (token.type) {
      case "strong":
        return <strong key={key}>{inline(token.tokens)}</strong>;
      case "em":
        return <em key={key}>{inline(token.tokens)}</em>;
      case "del":
        return <del key={key}>{inline(token.tokens)}</del>;
      case "codespan":
        return (
          <code key={key}>
            <Text value={token.text as string} lines />
          </code>
        );
      case "br":
        return <br key={key} />;
      case "link":
        return <Address key={key} link={token as Tokens.Link} />;
      case "text":
      case "escape":
        return "tokens" in token && token.tokens ? inline(token.tokens) : plain(token.text as string, key);
      default:
        return plain(token.raw, key); // images and HTML, as they were written
    }
  });
}

function plain(text: string, key: number): ComponentChildren {
  return <Text key={key} value={text} lines />;
}

/** A link as its text and its address: where it goes is read before it is followed. */
function Address({ link }: { link: Tokens.Link }) {
  const isShown = link.text === link.href;
  return (
    <>
      {!isShown && inline(link.tokens)}
      {!isShown && " "}
      <Outside href={link.href} />
    </>
  );
}
