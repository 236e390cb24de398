import assert from "node:assert/strict";
import { test } from "node:test";
import { at } from "../object/json.ts";
import { TestServer } from "../test-client.ts";

const WIDGETS = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com" },
  spec: {
    group: "example.com",
    scope: "Cluster",
    names: { plural: "widgets", kind: "Widget" },
    versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: { type: "object" } } }],
  },
};

test("openapi: a patch of a custom resource takes no strategic merge patch, one of a built-in kind does, in both versions", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS);
  await api.server.settled();
  const strategic = "application/strategic-merge-patch+json";
  const v2 = (await api.ask("GET", "/openapi/v2")).body;
  for (const [group, path, takesIt] of [
    ["apis/example.com/v1", "/apis/example.com/v1/widgets/{name}", false],
    ["api/v1", "/api/v1/nodes/{name}", true],
  ] as const) {
    const v3 = (await api.ask("GET", `/openapi/v3/${group}`)).body;
    const types = Object.keys((at(v3, "paths", path, "patch", "requestBody", "content") ?? {}) as object);
    assert.ok(types.includes("application/merge-patch+json"), `${path}: ${types.join()}`);
    assert.equal(types.includes(strategic), takesIt, path);
    assert.equal((at(v2, "paths", path, "patch", "consumes") as string[]).includes(strategic), takesIt, path);
  }
});
