import assert from "node:assert/strict";
import { test } from "node:test";
import type { CustomResourceDefinition } from "#kube/client";
import { coilCrds } from "#kube/coil";
import { crdFault } from "./crd-fault.ts";

type Editable = { spec: Record<string, unknown> & { versions: [Record<string, unknown>] }; status: object };

/** One of our definitions, as a cluster may have it, with a change. */
function found(at: number, edit: (crd: Editable) => void = () => undefined): CustomResourceDefinition {
  const status = { conditions: [{ type: "Established", status: "True" }] };
  const crd = structuredClone({ ...coilCrds[at], status }) as unknown as Editable;
  edit(crd);
  return crd as unknown as CustomResourceDefinition;
}

const faultOf = (at: number, edit?: (crd: Editable) => void): string | undefined => {
  const wanted = coilCrds[at];
  assert.ok(wanted !== undefined);
  return crdFault(found(at, edit), wanted);
};

test("crdFault: our own definitions are compatible, also with further versions, fields and texts", () => {
  for (const at of coilCrds.keys()) assert.equal(faultOf(at), undefined);
  const more = (crd: Editable): void => {
    crd.spec.versions.push({ name: "v3", served: true } as never);
    const [version] = crd.spec.versions as unknown as [
      { schema: { openAPIV3Schema: { description: string; properties: Record<string, object> } } },
    ];
    version.schema.openAPIV3Schema.description = "theirs";
    version.schema.openAPIV3Schema.properties["further"] = { type: "string" };
  };
  assert.equal(faultOf(0, more), undefined);
});

for (const [says, at, edit, fault] of [
  [
    "the version is not served",
    0,
    (crd) => Object.assign(crd.spec.versions[0], { served: false }),
    /not serve version v2/,
  ],
  ["it is not established", 0, (crd) => Object.assign(crd, { status: {} }), /not established/],
  ["its scope is another", 0, (crd) => Object.assign(crd.spec, { scope: "Namespaced" }), /scope is Namespaced/],
  ["it has no status", 2, (crd) => Object.assign(crd.spec.versions[0], { subresources: {} }), /no status subresource/],
  [
    "a field is missing",
    1,
    (crd) => {
      const [version] = crd.spec.versions as unknown as [{ schema: { openAPIV3Schema: { properties: object } } }];
      Object.assign(version.schema.openAPIV3Schema.properties, { ipv6: undefined });
    },
    /no field \.ipv6/,
  ],
  [
    "a field is of another type",
    1,
    (crd) => {
      const [version] = crd.spec.versions as unknown as [{ schema: { openAPIV3Schema: { properties: object } } }];
      Object.assign(version.schema.openAPIV3Schema.properties, { index: { type: "string" } });
    },
    /\.index is of type string, not integer/,
  ],
] as readonly (readonly [string, number, (crd: Editable) => unknown, RegExp])[]) {
  test(`crdFault: ${says}`, () => {
    assert.match(faultOf(at, (crd) => void edit(crd)) ?? "none", fault);
  });
}
