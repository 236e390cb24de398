import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import type { RawRequest } from "#kube/client";
import { OwnershipError } from "./errors.ts";
import { checkRights, GUEST_RIGHTS } from "./rights.ts";

test("deploy/lab/rbac.yaml: has exactly the rights that a lab checks", () => {
  const role = parse(readFileSync(join(import.meta.dirname, "../../../deploy/lab/rbac.yaml"), "utf8")) as object;
  assert.deepEqual("rules" in role ? role.rules : undefined, GUEST_RIGHTS);
});

test("checkRights: all missing rights are named at once, with the file that has them", async () => {
  const missing = new Set(["create nodes", "delete nodes", "patch addresspools"]);
  const api = {
    request: async ({ body }: RawRequest): Promise<unknown> => {
      const { spec } = body as { spec: { resourceAttributes: { verb: string; resource: string } } };
      const { verb, resource } = spec.resourceAttributes;
      return { status: { allowed: !missing.has(`${verb} ${resource}`) } };
    },
  };
  await assert.rejects(checkRights(api, {}), (error) => {
    assert.ok(error instanceof OwnershipError && error.code === "right-missing");
    assert.match(
      error.message,
      /may not create, delete nodes; patch addresspools of coil\.cybozu\.com: apply deploy\/lab\/rbac\.yaml/,
    );
    return true;
  });
  missing.clear();
  await checkRights(api, {});
});
