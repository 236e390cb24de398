import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { addToEstate } from "#base/estate";
import { leftOvers, sharedMarks } from "#features/suite-report";
import { PROGRAMS } from "../../programs.ts";
import { bootId, ownNetns } from "../estate/index.ts";
import { readMarks, splitSets } from "./read-marks.ts";

test("splitSets: the first set of a program with kernel objects is in force, and later ones are former", () => {
  const set = (program: string, ...tables: readonly number[]) => ({
    program,
    uid: 0,
    kernel: tables.map((table) => ({ id: "r", kind: "routes", table, protocol: 30 }) as const),
  });
  const [newest, before, other, earlierBoot] = [set("a", 1), set("a", 2), set("b", 3), set("b")];
  assert.deepEqual(splitSets([earlierBoot, newest, before, other]), { inForce: [newest, other], former: [before] });
});

test("readMarks: of the estates of this namespace the newest are in force; what an earlier one has, and defaults of a program without one, are left over unless it runs", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "isthmus-marks-"));
  t.after(() => rmSync(root, { recursive: true }));
  const folders = { run: join(root, "run"), state: join(root, "state") };
  const write = (program: string, table: number, netns = String(ownNetns())): void => {
    const ids = { coild: "export-routes", "coil-router": "routes" }[program] ?? "";
    const kernel = [{ id: ids, kind: "routes", table, protocol: 30 }] as const;
    addToEstate(join(folders.run, program), program, { boot: bootId(), netns, kernel, files: [] });
  };
  write("coild", 219);
  write("coild", 319);
  write("coild", 419, "1");
  const listed = new Map(
    ["coild", "coil-router"].map((name) => [name, PROGRAMS[name]?.load ?? assert.fail(name)] as const),
  );
  const routes = [219, 319, 419].map((table) => ({ family: 4, table, protocol: 30 }) as const);
  const rules = [{ family: 4, priority: 2000, table: 116, action: "lookup" } as const];
  const stack = { routes: { list: () => routes }, rules: { list: () => rules } } as never;
  const { facts, refused } = await readMarks(listed, stack, { running: new Set(["coil-router"]), folders });
  assert.deepEqual(refused, []);
  assert.deepEqual(
    facts.inForce.map(({ program }) => program),
    ["coild"],
  );
  assert.deepEqual(sharedMarks(facts.inForce), []);
  assert.deepEqual(
    [...new Set(leftOvers(facts).map(({ what }) => what.replace(/^\d+ /, "")))],
    ["IPv4 routes of table 219, protocol 30"],
  );
  rmSync(join(folders.run, "coild"), { recursive: true });
  const gone = await readMarks(listed, stack, { running: new Set(), folders });
  assert.deepEqual(gone.facts.inForce, []);
  assert.deepEqual(
    leftOvers(gone.facts).map(({ remedy }) => remedy?.split("; ")[0]),
    ["ip rule delete priority 2000 lookup 116"],
  );
});
