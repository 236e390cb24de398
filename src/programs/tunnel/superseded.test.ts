import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { agentFlags } from "./agent-flags.ts";
import { serverFlags } from "./server-flags.ts";
import { supersededByAgent, supersededByServer } from "./superseded.ts";

test("superseded: what upstream bounds by packets is said to be bounded otherwise, where it was given", () => {
  const ofAgent = (...args: string[]): string[] => supersededByAgent(parseFlags(agentFlags, args).values);
  const ofServer = (...args: string[]): string[] => supersededByServer(parseFlags(serverFlags, args).values);
  assert.deepEqual([ofAgent(), ofServer()], [[], []]);
  const [size, probe, ...more] = ofAgent("--xfr-channel-size=15", "--probe-interval=5s");
  assert.match(size ?? "", /^--xfr-channel-size has no effect: .* --conn-buffer-bytes for one connection/);
  assert.match(probe ?? "", /^--probe-interval has no effect: .* --keepalive-time$/);
  assert.deepEqual(more, []);
  const given = ofServer("--xfr-channel-size=11", "--frontend-write-channel-size=0");
  assert.deepEqual(
    given.map((line) => line.split(" ")[0]),
    ["--xfr-channel-size", "--frontend-write-channel-size"],
  );
});
