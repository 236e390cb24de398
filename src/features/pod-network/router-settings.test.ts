import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import { PodNetwork } from "./pod-network.ts";

const OPTIONS = {
  ...{ tableId: 116, rulePriority: 2000, protocolId: 30, compatCalico: false, hostLinkLocal: false, mtuBytes: 1500 },
};

test("PodNetwork: what udev writes over the settings of a new link is written back, once, and a failure is named", async () => {
  const kernel = new FakeKernel();
  kernel.createNetNs("pod")[Symbol.dispose]();
  using own = kernel.openNetNs("own");
  using host = kernel.openStack(own);
  using network = new PodNetwork({ kernel, log: nullLogger }, OPTIONS);
  await network.setUp({
    ...{ attachment: { containerId: "aaaa", ifname: "eth0" }, pool: "default", pod: { namespace: "ns", name: "a" } },
    ...{ netns: "/run/netns/pod", ipv4: IpAddress.parse("10.1.0.1"), ipv6: undefined },
  });
  const { name } = host.links.list().find(({ kind }) => kind === "veth") ?? assert.fail();
  const key = (setting: string): string => `net/ipv6/conf/${name}/${setting}`;
  const changes = (): number => network.repairSettings(network.survey()).changes;
  assert.equal(changes(), 0);
  host.sysctl.set(key("accept_ra"), "2");
  host.sysctl.set(key("disable_ipv6"), "0");
  assert.equal(changes(), 2);
  assert.deepEqual(
    ["accept_ra", "disable_ipv6"].map((one) => host.sysctl.get(key(one))),
    ["0", "1"],
  );
  assert.equal(changes(), 0);
  host.sysctl.set(key("accept_ra"), "2");
  kernel.fail("sysctl.set", "not-permitted", { about: "accept_ra" });
  const { failures } = network.repairSettings(network.survey());
  assert.equal(failures.length, 1);
});
