import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { GenerationTracker } from "#features/service-proxy";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { serviceProxyConfig } from "./config.ts";
import { Family } from "./families.ts";
import { serviceProxyFlags } from "./flags.ts";

/** A family on a host with these addresses; where it answers health checks of Services. */
function healthAddresses(nodePortAddresses: string, host: readonly string[], family: 4 | 6 = 4): string[] {
  const argv = ["--hostname-override=n", `--nodeport-addresses=${nodePortAddresses}`];
  const config = serviceProxyConfig(parseFlags(serviceProxyFlags, argv).values);
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const link = stack.links.create({ kind: "dummy", name: "eth0" });
  for (const text of host) stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse(text) });
  const elements = new FakeNftElements();
  const parts = { stack, nft: new FakeNft(), elements, conntrack: undefined, generations: new GenerationTracker(elements) };
  const node = { addresses: [IpAddress.parse("192.0.2.1")], zone: undefined, podCIDRs: [] };
  return new Family(family, config, parts, { node, observer: {}, log: nullLogger }).healthAddresses.map(String);
}

test("Family: health checks of Services are answered where NodePorts are taken, by one listener where that is everywhere", () => {
  const host = ["192.0.2.1", "198.51.100.1", "2001:db8::1"];
  assert.deepEqual(healthAddresses("primary", host), ["192.0.2.1"]);
  assert.deepEqual(healthAddresses("198.51.100.0/24", host), ["198.51.100.1"]);
  assert.deepEqual(healthAddresses("0.0.0.0/0", host), ["0.0.0.0"]);
  assert.deepEqual(healthAddresses("198.51.100.0/24", host, 6), ["::"]);
});

test("Family: a range of loopback is told of once, however often addresses change", () => {
  const { values } = parseFlags(serviceProxyFlags, ["--hostname-override=n", "--nodeport-addresses=127.0.0.0/8"]);
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const elements = new FakeNftElements();
  const parts = { stack, nft: new FakeNft(), elements, conntrack: undefined, generations: new GenerationTracker(elements) };
  const node = { addresses: [], zone: undefined, podCIDRs: [] };
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const family = new Family(4, serviceProxyConfig(values), parts, { node, observer: {}, log });
  for (let round = 0; round < 100; round += 1) family.setNode({ ...node, zone: `${round}` });
  assert.equal(lines.length, 1, lines.join(""));
});
