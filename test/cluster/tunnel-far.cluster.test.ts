/** docs/spec/tunnel.md#8.3: `./run bench tunnel-far` in a short form. Its long form, with `--check`, compares with Konnectivity's programs. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { listNetNs } from "#kernel/netns";

const bench = join(import.meta.dirname, "../../bench/tunnel-far.ts");

test("tunnel-far: bytes go both ways over a line with delay and loss, and nothing stays", {
  timeout: 60_000,
}, async () => {
  const flags = ["--json", "--rounds=1", "--seconds=0.5", "--rtt=20", "--loss=0.01", "--flows=2", "--sides=ours"];
  const { stdout } = await promisify(execFile)(process.execPath, [bench, ...flags]);
  const { cases } = JSON.parse(stdout) as {
    readonly cases: readonly { readonly way: string; readonly ours: number }[];
  };
  assert.deepEqual(
    cases.map(({ way, ours }) => [way, ours > 0]),
    [
      ["down", true],
      ["up", true],
    ],
  );
  assert.deepEqual(
    listNetNs().filter((name) => name.startsWith("line-")),
    [],
  );
});
