import assert from "node:assert/strict";
import { test } from "node:test";
import { PROGRAMS } from "./programs.ts";
import { helpText, parseProgram } from "./shared/program/index.ts";

/** Columns of the text, but for lines of one word, and commands, which begin with a space. */
const COLUMNS = 100;

for (const [name, { load }] of Object.entries(PROGRAMS)) {
  test(`${name}: -h is --help, and its text has lines of at most ${COLUMNS} characters`, async () => {
    const program = await load();
    assert.equal(parseProgram(program, ["-h"]).values.help, true);
    const text = helpText(program, `isthmus ${name}`);
    for (const line of text.split("\n")) if (line.length > COLUMNS) assert.match(line.trim(), /^\S+$/, line);
    assert.match(text, /also -h/);
  });
}
