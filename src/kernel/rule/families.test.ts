import assert from "node:assert/strict";
import { test } from "node:test";
import { isKernelError, KernelError, type KernelErrorCode } from "#kernel/errors";
import { familiesOf, type RulePort } from "./index.ts";

test("familiesOf: a kernel without IPv6 has IPv4 alone; an error that says something else is thrown", () => {
  const rules = (code?: KernelErrorCode): Pick<RulePort, "list"> => ({
    list: (family) => {
      if (family === 6 && code !== undefined) throw new KernelError(code, "Cannot list IPv6 rules");
      return [];
    },
  });
  assert.deepEqual(familiesOf(rules()), [4, 6]);
  assert.deepEqual(familiesOf(rules("unsupported")), [4]);
  assert.throws(
    () => familiesOf(rules("not-permitted")),
    (error) => isKernelError(error, "not-permitted"),
  );
});
