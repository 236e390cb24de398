// alone: it compares the network namespaces of the machine before and after
import assert from "node:assert/strict";
import { test } from "node:test";
import { openKernel } from "#kernel/net";
import { probeKernel } from "./index.ts";

test("probeKernel: finds the features that this tier needs, gives reasons for missing ones, and leaves nothing behind", () => {
  const before = openKernel().listNetNs();
  const features = probeKernel();
  const names = features.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  for (const name of ["veth", "bridge", "vxlan", "nf_tables", "nft nat", "policy rules", "IPv6"]) {
    const feature = features.find((one) => one.name === name);
    assert.equal(feature?.available, true, `${name}: ${feature?.detail}`);
  }
  for (const { detail, name } of features) assert.ok(detail.length > 0 && !detail.includes("\n"), name);
  assert.deepEqual(openKernel().listNetNs(), before);
});
