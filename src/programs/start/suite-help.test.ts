import assert from "node:assert/strict";
import { test } from "node:test";
import { PROGRAMS, publicGroups, publicPrograms } from "../programs.ts";
import { HELP_COLUMNS, suiteHelp } from "./suite-help.ts";

test("suiteHelp: groups with their programs; of a summary the first sentence, on lines under each other", () => {
  const text = suiteHelp([
    {
      title: "On each node",
      programs: [
        { name: "coild", summary: "Gives addresses and links to pods, e.g.10. Serves calls." },
        { name: "coil-router", summary: `Writes ${"routes and ".repeat(8)}nothing else` },
      ],
    },
    { title: "Other", programs: [{ name: "lab", summary: "Builds." }] },
  ]);
  assert.match(
    text,
    new RegExp(
      [
        "\n\nOn each node:",
        "  coild        Gives addresses and links to pods, e.g.10.",
        "  coil-router  Writes routes and routes and routes and routes and routes and",
        "               routes and routes and routes and nothing else",
        "",
        "Other:",
        "  lab          Builds.\n\n",
      ].join("\n"),
    ),
  );
});

test("isthmus --help: each program that users start is in one group, and no line is longer than 80 columns", async () => {
  const text = suiteHelp(await publicGroups());
  const listed = Array.from(text.matchAll(/^ {2}([a-z-]+) {2}/gm), ([, name]) => name);
  assert.deepEqual(listed, [...publicPrograms().keys()]);
  assert.equal(listed.length, Object.values(PROGRAMS).filter(({ group }) => group !== "internal").length);
  for (const line of text.split("\n")) assert.ok(line.length <= HELP_COLUMNS, line);
  for (const [, , sentence = ""] of text.matchAll(/^ {2}([a-z-]+) {2}(.*(?:\n {5,}.*)*)/gm))
    assert.match(sentence, /\.$/);
});
