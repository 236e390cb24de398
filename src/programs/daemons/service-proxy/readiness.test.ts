import assert from "node:assert/strict";
import { test } from "node:test";
import { KernelError } from "#kernel/errors";
import { KubeError } from "#kube/client";
import { Readiness } from "./readiness.ts";

const RESOURCES = ["services", "endpointslices", "nodes", "servicecidrs"];

function ready(): Readiness {
  const readiness = new Readiness({ resources: RESOURCES, families: [4, 6] });
  for (const resource of RESOURCES) readiness.read(resource);
  for (const family of [4, 6] as const) {
    readiness.synced(family);
    readiness.flows(family);
  }
  return readiness;
}

const unready = ({ health }: Readiness): string[] => health.unready.map(({ name, reason }) => `${name}: ${reason}`);

test("Readiness: at the start every dependency is a line with the reason why it waits", () => {
  assert.deepEqual(unready(new Readiness({ resources: RESOURCES, families: [4, 6] })), [
    ...RESOURCES.map((resource) => `watch ${resource}: not read yet`),
    "nftables IPv4: not synced yet",
    "nftables IPv6: not synced yet",
    "conntrack: ",
  ]);
  assert.deepEqual(unready(ready()), []);
});

test("Readiness: any degraded part makes it not ready, until the part has recovered", () => {
  const refused = new KubeError("forbidden", "may not list it");
  const rows: readonly [string, (readiness: Readiness) => void, (readiness: Readiness) => void][] = [
    ...RESOURCES.map((resource): (typeof rows)[number] => [
      `watch ${resource}: may not list it`,
      (readiness) => readiness.watch(resource, { state: "degraded", error: refused, failures: 1 }),
      (readiness) => readiness.watch(resource, { state: "ready" }),
    ]),
    [
      "nftables IPv6: busy",
      (readiness) => readiness.failed(6, new KernelError("busy", "busy")),
      (readiness) => readiness.synced(6),
    ],
    [
      "conntrack: not permitted",
      (readiness) => {
        readiness.flows(6, new KernelError("not-permitted", "not permitted"));
        readiness.flows(4);
      },
      (readiness) => readiness.flows(6),
    ],
  ];
  for (const [line, break_, mend] of rows) {
    const readiness = ready();
    break_(readiness);
    assert.deepEqual(unready(readiness), [line]);
    mend(readiness);
    assert.deepEqual(unready(readiness), []);
  }
});

test("Readiness: ServiceCIDRs that an API server does not serve are not waited for", () => {
  const readiness = ready();
  readiness.watch("servicecidrs", { state: "degraded", error: new KubeError("not-found", "404"), failures: 1 });
  readiness.absent("servicecidrs");
  assert.deepEqual(unready(readiness), []);
});

test("Readiness: the part of a family's table has the progress of its syncs", () => {
  const readiness = ready();
  readiness.synced(4, "sync 3 done, wanted state of revision 9");
  const progress = readiness.health.parts.flatMap(({ name, progress: done }) =>
    done === undefined ? [] : `${name}: ${done}`,
  );
  assert.deepEqual(progress, ["nftables IPv4: sync 3 done, wanted state of revision 9"]);
});
