// Builds the page into ../static: fixed names, no hashes, the same bytes from the same sources.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../../..");
const NOT_SOURCES = new Set(["node_modules", "dist"]);

function filesIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (NOT_SOURCES.has(entry.name)) return [];
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesIn(path) : [path];
  });
}

/** SHA-256 of all sources, the lock and the API's document; tests/unit/adapters/web compares it. */
function builtFrom(): string {
  const files = [...filesIn(here), join(root, "docs/reference/openapi.json")];
  const lines = files.map((file) => {
    const name = relative(root, file).replaceAll("\\", "/");
    return `${createHash("sha256").update(readFileSync(file)).digest("hex")}  ${name}\n`;
  });
  return createHash("sha256").update(lines.sort().join("")).digest("hex") + "\n";
}

/** The licences of the packages that are in the bundle. */
function licences(modules: Iterable<string>): string {
  const found = new Map<string, string>();
  for (const module of modules) {
    const match = /^.*\/node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(module.replaceAll("\\", "/"));
    if (!match || found.has(match[1]!)) continue;
    const about = JSON.parse(readFileSync(join(match[0], "package.json"), "utf8"));
    const file = readdirSync(match[0]).sort().find((name) => /^licen[cs]e/i.test(name));
    const text = file && existsSync(join(match[0], file)) ? readFileSync(join(match[0], file), "utf8") : "";
    found.set(match[1]!, `${about.name} ${about.version} (${about.license})\n\n${text.trim()}\n`);
  }
  return [...found].sort().map(([, text]) => text).join(`\n${"-".repeat(72)}\n\n`);
}

function records(): Plugin {
  return {
    name: "turnledger-records",
    generateBundle(_options, bundle) {
      const modules = Object.values(bundle).flatMap((one) => (one.type === "chunk" ? Object.keys(one.modules) : []));
      this.emitFile({ type: "asset", fileName: "LICENSES.txt", source: licences(modules) });
      this.emitFile({ type: "asset", fileName: "BUILT_FROM", source: builtFrom() });
    },
  };
}

export default defineConfig({
  base: "/",
  plugins: [records()],
  resolve: {
    alias: {
      react: "preact/compat",
      "react-dom": "preact/compat",
    },
  },
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: "assets/page.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/page[extname]",
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8321" } },
});
