// The guides quote what programs say; the programs decide it. An operator searches for these words.
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "../..");
/** The words that introduce a message on a page. */
const QUOTED = /(?:says?|said|have|fails with|starts? with|ends with|error) `([^`]{8,})`/g;
/** Messages of other programs, and a line whose words are those of a request. */
const OF_OTHERS = [/^assert self\.xid/, /^unsupported CNI result version/, /^CONNECT registry/];
/** A part of a message that differs each time. */
const GAP = /…|\.\.\.|<[^>]+>/;

/** A message as it is in a source: on one line, with expressions in the gaps, and without the number of an HTTP status. */
function patternOf(message: string): RegExp {
  const parts = message.replace(/^\d{3} /, "").split(GAP);
  return new RegExp(parts.map((part) => part.replaceAll(/[$()*+.?[\\\]^{|}]/g, "\\$&")).join(".{1,60}"));
}

test("guides: each message that a page quotes is in the sources of a program", () => {
  const sources = globSync("src/**/*.ts", { cwd: root, exclude: ["**/*.test.ts", "**/testing/**"] })
    .map((file) => readFileSync(join(root, file), "utf8"))
    .join("\n");
  const quotes = globSync("docs/{guides,tutorial}/*.md", { cwd: root }).flatMap((page) =>
    [...readFileSync(join(root, page), "utf8").matchAll(QUOTED)].map(([, text = ""]) => ({ page, text })),
  );
  const messages = quotes.filter(({ text }) => text.includes(" ") && !OF_OTHERS.some((other) => other.test(text)));
  const missing = messages.filter(({ text }) => !patternOf(text).test(sources));
  assert.deepEqual(missing, []);
  assert.ok(messages.length >= 4, messages.map(({ text }) => text).join("\n"));
});
