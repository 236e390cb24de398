import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { HostError } from "./errors.ts";
import { checkKernelVersion, kernelRelease, SKIP_VERSION_CHECK } from "./start-checks.ts";

/** The log lines for a release, or the error's message if it is refused. */
function check(release: string, env: Record<string, string> = {}): string {
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  try {
    checkKernelVersion(release, { env, log });
  } catch (error) {
    assert.ok(error instanceof HostError, String(error));
    return error.message;
  }
  return lines.join("");
}

test("checkKernelVersion: 5.13 and newer are accepted without a log line, whatever a distribution adds", () => {
  for (const release of ["5.13.0", "5.13", "5.14.0-427.el9.x86_64", "6.1.0-rc3+", "10.0.1", kernelRelease()])
    assert.equal(check(release), "", release);
});

test("checkKernelVersion: an older kernel is refused with the needed version, and tried if the environment says so", () => {
  for (const release of ["5.12.19", "5.4.0-150-generic", "4.19.0", "3.10.0-1160.el7"]) {
    assert.match(check(release), new RegExp(`Linux ${release}: 5.13 or newer is needed; ${SKIP_VERSION_CHECK}=1`));
    assert.match(check(release, { [SKIP_VERSION_CHECK]: "1" }), /older than .*the start continues/);
    assert.match(check(release, { [SKIP_VERSION_CHECK]: "" }), /is needed/);
  }
});

test("checkKernelVersion: an unreadable version is logged and accepted", () => {
  assert.match(check("unknown"), /cannot be read; the start continues/);
});
