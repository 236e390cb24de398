import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpFamily } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import type { ElementTable } from "#kernel/nft-elements";
import { leftovers } from "./leftovers.ts";

/** `tables`: chains by `family name`; `links`: names. */
function found(
  tables: Readonly<Record<string, readonly string[]>>,
  options: {
    readonly links?: readonly string[];
    readonly tableName?: string;
    readonly legacy?: readonly IpFamily[];
  } = {},
): string[] {
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  for (const name of options.links ?? []) stack.links.create({ kind: "dummy", name });
  const names = ({ family, name }: ElementTable) => {
    const chains = tables[`${family} ${name}`];
    return chains === undefined ? undefined : { chains, sets: [] };
  };
  const hasLegacyNat = (family: IpFamily): boolean => options.legacy?.includes(family) === true;
  return leftovers({ elements: { names }, links: stack.links, hasLegacyNat }, options.tableName ?? "kube-proxy");
}

test("leftovers: chains of iptables mode are reported by family; kubelet's and other programs' are not", () => {
  assert.deepEqual(found({ "ip nat": ["KUBE-SERVICES", "KUBE-SVC-ABC", "KUBE-MARK-MASQ", "DOCKER"] }), [
    "table ip nat has 2 chains of kube-proxy's iptables mode; remove them with the iptables commands of docs/guides/service-proxy.md; kube-proxy --cleanup would delete the tables of service-proxy too",
  ]);
  assert.deepEqual(found({ "ip nat": ["KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"], "ip6 nat": [] }), []);
});

test("leftovers: a table kube-proxy is another program's if ours has another name", () => {
  assert.deepEqual(found({ "ip kube-proxy": [] }), []);
  assert.match(
    found({ "ip6 kube-proxy": [] }, { tableName: "mine" }).join(),
    /^table ip6 kube-proxy of another proxy exists/,
  );
});

test("leftovers: the link of IPVS mode is reported", () => {
  assert.match(
    found({}, { links: ["kube-ipvs0", "eth0"] }).join(),
    /^link kube-ipvs0 of kube-proxy's IPVS mode exists; remove it with ipvsadm --clear && ip link delete kube-ipvs0$/,
  );
  assert.deepEqual(found({}, { links: ["eth0"] }), []);
});

test("leftovers: a nat table of legacy iptables is reported as what it may be, with the command that shows it", () => {
  assert.deepEqual(found({}, { legacy: [6] }), [
    "table nat of legacy iptables exists in IPv6, whose chains cannot be read here; it may be of kube-proxy's iptables mode, or of another program, such as Docker: ip6tables-legacy-save -t nat shows chains KUBE-SVC-... in the first case",
  ]);
  assert.deepEqual(found({}, { legacy: [4] }).length, 1);
});
