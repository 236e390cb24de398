import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { serverFlags } from "./flags.ts";
import { ineffectiveServerFlags } from "./ineffective-flags.ts";

test("ineffectiveServerFlags: a given flag without an effect is reported with its replacement", () => {
  const sentences = (...args: string[]): string[] => ineffectiveServerFlags(parseFlags(serverFlags, args).values);
  assert.deepEqual(sentences(), []);
  assert.deepEqual(
    sentences("--xfr-channel-size=11", "--frontend-write-channel-size=0").map((line) => line.split(" ")[0]),
    ["--xfr-channel-size", "--frontend-write-channel-size"],
  );
});
