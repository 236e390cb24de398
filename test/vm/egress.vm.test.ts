import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { fouDriver, vxlanDriver } from "#features/egress";
import { loadModules } from "#kernel/modules";
import { openKernel } from "#kernel/net";
import {
  auditClaims,
  bulkClaims,
  driverChangeClaims,
  driverClaims,
  familyClaims,
  flowClaims,
  ipv6OffClaims,
  mtuClaims,
  originClaims,
  portClaims,
  smallMtuClaims,
  sourcePortClaims,
} from "../../src/features/egress/testing/claims.ts";
import { guardClaims, portShareClaims, probeClaims } from "../../src/features/egress/testing/guard-claims.ts";
import { lostRouterClaims } from "../egress/lost-router-claims.ts";

await loadModules(["fou", "fou6"]);
guardClaims(fouDriver);
probeClaims(fouDriver);
portShareClaims(fouDriver);
lostRouterClaims(fouDriver);
driverClaims(fouDriver);
familyClaims(fouDriver);
mtuClaims(fouDriver);
ipv6OffClaims(fouDriver);
smallMtuClaims(fouDriver);
// The emulated processor takes half a second for each.
bulkClaims(fouDriver, 10);
originClaims(fouDriver);
flowClaims(fouDriver);
portClaims(fouDriver);
driverChangeClaims([fouDriver, vxlanDriver]);
sourcePortClaims(fouDriver);
auditClaims(fouDriver);

describe("with the kernel's own tunl0 and ip6tnl0 in every namespace, as on most nodes", () => {
  const KEY = "/proc/sys/net/core/fb_tunnels_only_for_init_net";
  before(() => writeFileSync(KEY, "0"));
  after(() => writeFileSync(KEY, "1"));
  test("a new namespace has them", () => {
    const kernel = openKernel();
    using netns = kernel.createAnonymousNetNs();
    using stack = kernel.openStack(netns);
    assert.deepEqual(
      stack.links
        .list()
        .map(({ name }) => name)
        .toSorted(),
      ["ip6tnl0", "lo", "tunl0"],
    );
  });
  driverClaims(fouDriver);
});
