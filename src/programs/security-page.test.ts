// The page of security says of each program where it listens and which capabilities it needs; the programs decide both.
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { publicPrograms } from "./programs.ts";

const root = join(import.meta.dirname, "../..");
const page = readFileSync(join(root, "docs/security.md"), "utf8");
/** Flags of addresses and ports where a program listens; a flag that only names another's place is none of them. */
const LISTENS =
  /^(.*-addr|listen|socket|control-socket|.*-bind-address|(server|agent|health|admin|health-server|admin-server)-port)$/;
/** Flags of that shape that open nothing. */
const ELSEWHERE: Readonly<Record<string, readonly string[]>> = {
  audit: ["socket"],
  uninstall: ["socket"],
  "proxy-server": ["server-bind-address", "agent-bind-address", "health-bind-address", "admin-bind-address"],
  "proxy-agent": ["admin-bind-address"],
};

/** The rows of a section's table, by their first cell, which may name several programs. */
function rowsOf(title: string): ReadonlyMap<string, string> {
  const [, section = ""] = page.split(`## ${title}\n`);
  const lines = (section.split("\n## ")[0] ?? "").split("\n").filter((line) => line.startsWith("| `"));
  const rows = new Map<string, string>();
  for (const line of lines)
    for (const [, name = ""] of (line.split("|")[1] ?? "").matchAll(/`([^`]+)`/g))
      rows.set(name, `${rows.get(name) ?? ""}${line}\n`);
  return rows;
}

test("security.md: names every address on which a program listens by default, and no program that listens on none", async () => {
  const rows = rowsOf("What listens where");
  const listening = new Set<string>();
  for (const { load } of publicPrograms().values()) {
    const { name, flags } = await load();
    for (const { name: flag, defaultText: address = "" } of Object.values(flags)) {
      if (!LISTENS.test(flag) || ELSEWHERE[name]?.includes(flag) === true || address === "") continue;
      listening.add(name);
      assert.ok(rows.get(name)?.includes(address) === true, `${name}: --${flag} ${address} is not on the page`);
    }
  }
  assert.ok(listening.size > 10, `only ${listening.size} programs listen`);
  assert.deepEqual([...rows.keys()].filter((name) => !listening.has(name)).sort(), []);
});

test("security.md: has the capabilities that each program looks for at its start", async () => {
  const rows = rowsOf("What runs with which rights");
  const needs = new Map<string, string>();
  for (const file of globSync("src/programs/*/*/program.ts", { cwd: root })) {
    const name = basename(dirname(file));
    for (const [, list = ""] of readFileSync(join(root, file), "utf8").matchAll(
      /requirePrivileges\("[^"]+", \[([^\]]+)\]/g,
    ))
      needs.set(name, list);
  }
  for (const [name, { load }] of publicPrograms()) {
    const { privileges } = await load();
    if (privileges !== undefined) needs.set(name, privileges.needs.join());
  }
  assert.ok(needs.size >= 6, `only ${[...needs.keys()].join(", ")} look for capabilities`);
  for (const [name, list] of needs)
    for (const [capability] of list.matchAll(/CAP_\w+/g))
      assert.ok(rows.get(name)?.includes(capability) === true, `${name}: ${capability} is not on the page`);
});

test("security.md: each line of what an attacker cannot do has a name of its own", () => {
  const names = [...page.matchAll(/^\| ([PTNLS]\d+) \|/gm)].map(([, name]) => name);
  assert.ok(names.length > 0);
  assert.deepEqual(
    names.filter((name, at) => names.indexOf(name) !== at),
    [],
  );
});
