import assert from "node:assert/strict";
import { test } from "node:test";
import { isKernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import { probePodSetUp } from "./probe.ts";

test("probePodSetUp: a step that is not permitted is named beforehand, and nothing is left", () => {
  const kernel = new FakeKernel();
  probePodSetUp(kernel);
  kernel.fail("sysctl.set", "not-permitted", { about: "accept_dad" });
  assert.throws(
    () => probePodSetUp(kernel),
    (error) => isKernelError(error, "not-permitted") && /accept_dad/.test(error.message),
  );
  kernel.fail("createAnonymousNetNs", "not-permitted");
  assert.throws(() => probePodSetUp(kernel), { code: "not-permitted" });
  kernel.heal();
  probePodSetUp(kernel);
  assert.doesNotMatch(kernel.dump("own"), /veth/);
});

test("probePodSetUp: a kernel without IPv6 sets up pods of IPv4, so it is no fault", () => {
  const kernel = new FakeKernel();
  for (const step of ["sysctl.get", "sysctl.set"] as const) kernel.fail(step, "not-found", { about: "ipv6" });
  probePodSetUp(kernel);
});
