import assert from "node:assert/strict";
import { test } from "node:test";
import { faultsOf } from "./flags.ts";

const DEFAULTS = {
  enableIpam: true,
  enableEgress: true,
  podTableId: 116,
  exportTableId: 119,
  protocolId: 30,
};

for (const { name, changes, faults } of [
  { name: "the defaults", changes: {}, faults: [] },
  {
    name: "behind another plugin, as Coil's manifests have it",
    changes: { enableIpam: false, podTableId: 0, protocolId: 2 },
    faults: [],
  },
  {
    name: "nothing to do",
    changes: { enableIpam: false, enableEgress: false },
    faults: [/^--enable-ipam, --enable-egress: both/],
  },
  { name: "address management alone", changes: { enableEgress: false }, faults: [] },
  { name: "no table with addresses", changes: { podTableId: 0 }, faults: [/^--pod-table-id: 0/] },
  { name: "the kernel's protocol with addresses", changes: { protocolId: 2 }, faults: [/^--protocol-id: 2/] },
  { name: "one table for both", changes: { exportTableId: 116 }, faults: [/^--export-table-id: 116/] },
]) {
  test(`coild: its flags: ${name}`, () => {
    const found = faultsOf({ ...DEFAULTS, ...changes });
    assert.equal(found.length, faults.length, found.join());
    for (const [at, fault] of faults.entries()) assert.match(found[at] ?? "", fault);
  });
}
