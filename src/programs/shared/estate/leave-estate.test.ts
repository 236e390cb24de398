import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { NO_ESTATE, readEstate } from "#base/estate";
import { createLogger } from "#base/log";
import { estateFolders, leaveEstate } from "./leave-estate.ts";

test("estateFolders: those of the machine; with a service manager only those that it names", () => {
  const of = (env: Readonly<Record<string, string>>): readonly string[] => estateFolders("coild", env);
  assert.deepEqual(of({}), ["/run/isthmus/coild", "/var/lib/isthmus/coild"]);
  assert.deepEqual(
    of({ RUNTIME_DIRECTORY: "/run/coild:/run/isthmus/coild", STATE_DIRECTORY: "/var/lib/isthmus/coild" }),
    ["/run/isthmus/coild", "/var/lib/isthmus/coild"],
  );
  assert.deepEqual(of({ RUNTIME_DIRECTORY: "/run/isthmus/lab-x/run/coild-node1" }), [
    "/run/isthmus/lab-x/run/coild-node1/coild",
  ]);
  assert.deepEqual(of({ STATE_DIRECTORY: "" }), []);
});

test("leaveEstate: claims and paths are there for a reader; where they cannot be written, the log says so once and nothing is thrown", (t) => {
  const root = mkdtempSync(join(tmpdir(), "isthmus-leave-"));
  t.after(() => rmSync(root, { recursive: true }));
  const lines: string[] = [];
  const log = createLogger({ name: "x", write: (line) => void lines.push(line) });
  const [run, state] = [join(root, "run/isthmus/coild"), join(root, "state/isthmus/coild")];
  const claim = { id: "a", kind: "routes", table: 116, protocol: 30 } as const;
  const estate = {
    ...NO_ESTATE,
    kernel: [{ claims: [claim], what: "routes" }],
    files: [{ path: "/run/coild.sock", what: "socket" }],
  };
  const options = { inode: 7n, log, env: { RUNTIME_DIRECTORY: run, STATE_DIRECTORY: state } };
  leaveEstate("coild", estate, options);
  for (const folder of [run, state]) {
    const [set, ...more] = readEstate(folder, "coild").sets;
    assert.deepEqual([set?.netns, set?.kernel, set?.files, more], ["7", [claim], ["/run/coild.sock"], []]);
    assert.match(set?.boot ?? "", /^[0-9a-f-]{36}$/);
  }
  assert.deepEqual(lines, []);
  const file = join(root, "file");
  writeFileSync(file, "");
  leaveEstate("coild", estate, { ...options, env: { RUNTIME_DIRECTORY: file, STATE_DIRECTORY: state } });
  assert.deepEqual(lines, [], "one of the two is enough");
  leaveEstate("coild", estate, { ...options, env: { RUNTIME_DIRECTORY: file, STATE_DIRECTORY: file } });
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? "", /cannot write the estate of coild.*ENOTDIR.*; .*ENOTDIR.*cannot be recorded/);
});
