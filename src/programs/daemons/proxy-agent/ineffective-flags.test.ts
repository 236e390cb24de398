import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { agentFlags } from "./flags.ts";
import { ineffectiveAgentFlags } from "./ineffective-flags.ts";

test("ineffectiveAgentFlags: a given flag without an effect is reported with its replacement", () => {
  const sentences = (...args: string[]): string[] => ineffectiveAgentFlags(parseFlags(agentFlags, args).values);
  assert.deepEqual(sentences(), []);
  const [size, probe, ...more] = sentences("--xfr-channel-size=15", "--probe-interval=5s");
  assert.match(size ?? "", /^--xfr-channel-size has no effect: .* --conn-buffer-bytes for one connection/);
  assert.match(probe ?? "", /^--probe-interval has no effect: .* --keepalive-time$/);
  assert.deepEqual(more, []);
  const [label, ...others] = sentences("--lease-label=a=b");
  assert.match(label ?? "", /^--lease-label has no effect: without --count-server-leases servers are not counted/);
  assert.deepEqual(others, []);
  assert.deepEqual(sentences("--lease-label-selector=a=b", "--count-server-leases"), []);
});
