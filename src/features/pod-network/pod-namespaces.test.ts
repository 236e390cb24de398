import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress, MacAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import { PodNamespaces } from "./pod-namespaces.ts";

test("PodNamespaces: every pod is found, in whatever order they are looked for, and each as often as wanted", () => {
  const names = ["a", "b", "c", "d"];
  for (const order of [names, names.toReversed(), ["b", "a", "a", "c", "b", "d", "a"]]) {
    const kernel = new FakeKernel();
    using own = kernel.openNetNs("own");
    using host = kernel.openStack(own);
    const links = new Map(
      names.map((name, at) => {
        using netns = kernel.createNetNs(name);
        const mac = MacAddress.parse(`02:00:00:00:01:0${at}`);
        const link = host.links.create({ kind: "veth", name: `veth${name}`, peer: { name: "eth0", netns, mac } });
        using pod = kernel.openStack(netns);
        const linkIndex = pod.links.get({ name: "eth0" })?.index ?? assert.fail();
        pod.addresses.add({ linkIndex, address: IpAddress.parse(`10.0.0.${at}`), prefixLength: 32 });
        return [name, link.index] as const;
      }),
    );
    const listed = new Map(host.links.list().map((link) => [link.index, link] as const));
    const namespaces = new PodNamespaces(kernel, host);
    for (const name of order) {
      const link = listed.get(links.get(name) ?? 0) ?? assert.fail();
      assert.deepEqual(
        namespaces.addressesOf(link)?.map(String),
        [`10.0.0.${names.indexOf(name)}`],
        `${order}: ${name}`,
      );
      const place = namespaces.placeOf(link);
      using netns = kernel.openNetNs({ name });
      assert.deepEqual(place, { path: `/run/netns/${name}`, inode: netns.inode });
      const end = namespaces.endOf(link);
      assert.deepEqual([end?.path, `${end?.mac}`], [`/run/netns/${name}`, `02:00:00:00:01:0${names.indexOf(name)}`]);
    }
  }
});
