import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { errnoName } from "./errno.ts";
import { errnoNumber, isKernelError, KernelError } from "./index.ts";

test("KernelError.fromErrno: has the attempt, the kernel's reason and its own text", () => {
  const error = KernelError.fromErrno(101, "add route 10.1.0.0/24 via 192.0.2.2", "Nexthop has invalid gateway");
  assert.equal(
    error.message,
    "Cannot add route 10.1.0.0/24 via 192.0.2.2: Network is unreachable: Nexthop has invalid gateway (ENETUNREACH)",
  );
  assert.equal(error.code, "unreachable");
  assert.equal(error.errno, "ENETUNREACH");
  assert.equal(KernelError.fromErrno(4242, "x").code, "failed");
});

test("errno names and numbers agree with Node's", () => {
  for (const [name, number] of Object.entries(constants.errno)) {
    if (errnoName(number).startsWith("E1") || errnoNumber(name) === undefined) continue; // not in our table
    assert.equal(errnoNumber(name), number, name);
  }
  assert.equal(errnoNumber("ENODEV"), constants.errno.ENODEV);
  assert.equal(errnoName(17), "EEXIST");
});

test("isKernelError: is of the codes given, or any", () => {
  const error = KernelError.fromErrno(17, "x");
  assert.ok(isKernelError(error));
  assert.ok(isKernelError(error, "busy", "already-exists"));
  assert.ok(!isKernelError(error, "busy"));
  assert.ok(!isKernelError(new Error("x")));
});
