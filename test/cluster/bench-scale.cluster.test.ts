/** `./run bench scale` in a small cluster: it measures all that it promises, beside its budgets, and its exit code says whether one is exceeded. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { listNetNs } from "#kernel/netns";

interface Report {
  readonly sizes: unknown;
  readonly rows: readonly { readonly what: string; readonly value: number; readonly budget?: number }[];
  readonly exceeded: readonly string[];
}
const root = join(import.meta.dirname, "../..");

function bench(
  ...flags: readonly string[]
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [join(root, "tools/bench.ts"), "scale", ...flags],
      { timeout: 240_000 },
      (_error, stdout, stderr) => resolve({ code: child.exitCode ?? -1, stdout, stderr }),
    );
  });
}

const leftovers = (): string[] => listNetNs().filter((name) => name.startsWith("isthmus-bench-"));

test("bench scale: a small cluster gives every figure, seven of them beside a budget, and nothing stays", async () => {
  const before = leftovers();
  const { code, stdout, stderr } = await bench("--json", "--nodes=40", "--pods=400", "--blocks=160", "--seconds=3");
  assert.ok(stdout.startsWith("{"), stderr);
  const { sizes, rows, exceeded } = JSON.parse(stdout) as Report;
  assert.deepEqual(sizes, { nodes: 40, pods: 400, blocks: 160 });
  const over = rows.filter(({ value, budget }) => budget !== undefined && value > budget);
  assert.deepEqual(
    exceeded,
    over.map(({ what }) => what),
  );
  assert.equal(code, over.length > 0 ? 1 : 0, stderr);
  assert.deepEqual(
    rows.filter(({ value }) => !Number.isFinite(value) || value < 0),
    [],
  );
  const budgets = rows.flatMap(({ budget }) => budget ?? []).sort((a, b) => a - b);
  assert.deepEqual(budgets, [1.2, 5, 5, 5, 5, 100, 600]);
  const perPod = rows.find(({ what }) => what.startsWith("requests a pod: coild"));
  assert.ok(perPod !== undefined && perPod.value >= 1, "each ADD reads its Pod");
  assert.deepEqual(leftovers(), before);
});

test("bench scale: a size that is no number is refused", async () => {
  const { code, stderr } = await bench("--nodes=many");
  assert.notEqual(code, 0);
  assert.match(stderr, /--nodes: "many" is not a whole number from 1/);
});
