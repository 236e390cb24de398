import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { OvsBed, skipWithoutOvs } from "#test/ovs-bed";
import { countFlows } from "./index.ts";

const NETNS = `iso-of-${process.pid}`;
let bed: OvsBed | undefined;

before(async () => {
  if (skipWithoutOvs !== false) return;
  execFileSync("ip", ["netns", "add", NETNS]);
  bed = await OvsBed.open({ netns: NETNS });
});
after(async () => {
  await bed?.[Symbol.asyncDispose]();
  if (bed !== undefined) execFileSync("ip", ["netns", "delete", NETNS]);
});

test("countFlows: the flows of a bridge, none after the switch has started again", {
  skip: skipWithoutOvs,
}, async () => {
  assert.ok(bed !== undefined);
  const path = join(bed.folder, "br-int.mgmt");
  // As Neutron's agent leaves it: without flows it forwards nothing.
  bed.vsctl("set-fail-mode", "br-int", "secure", "--", "set", "bridge", "br-int", "protocols=[OpenFlow10,OpenFlow13]");
  const ofctl = (...args: readonly string[]): void => {
    execFileSync("ovs-ofctl", ["-O", "OpenFlow13", ...args]);
  };
  ofctl("del-flows", `unix:${path}`);
  assert.equal(await countFlows({ clock: systemClock }, path), 0);
  for (const table of [0, 23, 60]) ofctl("add-flow", `unix:${path}`, `table=${table},actions=drop`);
  assert.equal(await countFlows({ clock: systemClock }, path), 3);
  await bed.stopSwitch();
  bed.startSwitch();
  // It waits until the switch has read its database.
  bed.vsctl("set", "bridge", "br-int", "other_config:again=1");
  assert.equal(await countFlows({ clock: systemClock }, path), 0);
});
