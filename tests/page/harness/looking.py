"""What a reader would see: rows of the list, the order of glyphs, controls in their place."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

# Scrolls through a list whose rows are there only while they are in sight, and reads each row.
READ_ROWS = """async (list) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const left = (row, name) => Math.round(row.querySelector(name).getBoundingClientRect().left);
  const found = new Map();
  for (let top = 0; ; top += list.clientHeight - 100) {
    list.scrollTop = top;
    for (let frames = 0; ; frames++) {
      await frame();
      if (!list.querySelector(".skeleton") && list.querySelector(".event")) break;
      if (frames > 3000) throw new Error(`rows at ${top} are not there`);
    }
    for (const row of list.querySelectorAll(".event")) {
      const said = row.querySelector(".said");
      const version = row.querySelector(".version").textContent;
      const row_read = {
        version: Number(version.replaceAll(",", "")),
        type: row.querySelector(".type").textContent,
        said: said.textContent,
        tags: [...new Set([...said.querySelectorAll("*")].map((one) => one.localName))],
        box: [left(row, ".version"), left(row, ".symbol"), left(row, ".type"), left(row, ".said"),
          row.offsetHeight],
      };
      found.set(row.parentElement.style.transform + version, row_read);
    }
    if (top + list.clientHeight >= list.scrollHeight) break;
  }
  return [...found.values()].sort((one, other) => one.version - other.version);
}"""

# Texts of the page itself whose glyphs do not stand from left to right, and what is beside a text
# of a run and not on its side.
DISORDER = """() => {
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest(".text, noscript")) continue;
    let before = null;
    for (let place = 0; place < Math.min(node.length, 60); place++) {
      if (/\\s/.test(node.data[place])) continue;
      range.setStart(node, place);
      range.setEnd(node, place + 1);
      const box = range.getClientRects()[0];
      if (!box?.width) continue;
      const isSameLine = before && Math.abs(box.top - before.top) < 2;
      if (isSameLine && box.left < before.left) wrong.push(`glyphs of ${node.data.slice(0, 60)}`);
      before = box;
    }
  }
  for (const text of document.querySelectorAll(".text")) {
    const own = [...text.getClientRects()].at(-1);
    const next = text.nextElementSibling?.getClientRects()[0];
    if (!own?.width || !next?.width || Math.abs(own.top - next.top) > 3) continue;
    if (next.left < own.left) wrong.push(`beside ${text.textContent.slice(0, 60)}`);
  }
  return [...new Set(wrong)];
}"""

# Markup that no text may become.
MARKUP = """() => {
  const wrong = [];
  const own = ["/assets/page.js", "/assets/page.css", "/icon.svg"];
  const foreign = "iframe, object, embed, base, form, img, svg, math, video, audio, frame, style,"
    + "meta[http-equiv], template, animate, picture, source, track, portal, marquee";
  for (const one of document.querySelectorAll(foreign)) wrong.push(one.outerHTML.slice(0, 80));
  for (const one of document.querySelectorAll("script, link")) {
    const from = new URL(one.src ?? one.href, location.href);
    if (from.origin !== location.origin || !own.includes(from.pathname)) wrong.push(one.outerHTML);
  }
  for (const one of document.querySelectorAll("*")) {
    if (one.getAttributeNames().some((name) => name.startsWith("on"))) wrong.push(one.outerHTML);
  }
  for (const one of document.querySelectorAll("a[href]")) {
    if (new URL(one.href).origin !== location.origin) wrong.push(one.outerHTML.slice(0, 80));
  }
  return wrong;
}"""

# Where the controls are that stand around what a run says, by name; null where another thing
# covers one, or where it is out of sight.
CONTROLS = """() => {
  const places = {};
  const panes = document.querySelector(".panes")?.getBoundingClientRect().top ?? 0;
  const around = "nav.top, .run-head, .strip, [role=tablist], .divider, .search";
  for (const box of document.querySelectorAll(around)) {
    const inside = [...box.querySelectorAll("button, a[href], input, [role=slider], [role=tab]")];
    for (const one of box.matches(".divider") ? [box] : inside) {
      const { left, top, width, height } = one.getBoundingClientRect();
      const own = one.parentElement.closest(".search");
      if (!width || (own && own !== box)) continue;
      const name = `${one.localName} ${one.getAttribute("aria-label") ?? one.textContent}`
        .replace(/[\\d,.]+/g, "0");
      const hit = document.elementFromPoint(left + width / 2, top + height / 2);
      const isThere = hit && (one.contains(hit) || hit.contains(one));
      const key = `${name} ${Object.keys(places).filter((known) => known.startsWith(name)).length}`;
      const from = one.closest(".panes") ? panes : 0;
      places[key] = isThere ? [Math.round(left), Math.round(top - from)] : null;
    }
  }
  return places;
}"""


def all_rows(page: Page) -> list[dict[str, Any]]:
    """Every row of the list of events, by its version."""
    found: list[dict[str, Any]] = page.locator(".events .rows").evaluate(READ_ROWS)
    return found


def disorder(page: Page) -> list[str]:
    """What does not stand in its order from left to right."""
    found: list[str] = page.evaluate(DISORDER)
    return found


def markup(page: Page) -> list[str]:
    """Elements and attributes that the page itself never has."""
    found: list[str] = page.evaluate(MARKUP)
    return found


def controls(page: Page) -> dict[str, list[int] | None]:
    """Where the controls around what a run says are; None for one that can't be reached."""
    found: dict[str, list[int] | None] = page.evaluate(CONTROLS)
    return found
