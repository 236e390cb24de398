/** The tries of a demanding operator on one node (docs/design/pod-network.md, D2, D15, D16), with the shipped programs. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { resources } from "#kube/client";
import { coilResources, POOL_ANNOTATION } from "#kube/coil";
import { CniNode } from "#test/cni-node";
import { until } from "#test/lab";

const PARALLEL = 200;
const CYCLES = process.env["ISTHMUS_SOAK"] === "full" ? 1000 : 200;
const AT_ONCE = 10;
let node: CniNode;

before(async () => {
  node = await CniNode.open("demands");
});

after(async () => {
  await node?.[Symbol.asyncDispose]();
});

/** Namespaces of the kernel for pods, until the test ends. */
function namespaces(t: TestContext, count: number): string[] {
  const kernel = openKernel();
  const names = Array.from({ length: count }, (_, at) => `isthmus-demands-${process.pid}-${at}`);
  for (const name of names) kernel.createNetNs(name)[Symbol.dispose]();
  t.after(() => {
    for (const name of names) kernel.deleteNetNs(name);
  });
  return names;
}

/** Everything of pods that the node's kernel has. */
function podState(): string {
  const routes = node.ip("-4", "route", "show", "table", "all") + node.ip("-6", "route", "show", "table", "all");
  const tables = routes.split("\n").filter((line) => /table (116|119)\b/.test(line));
  return [...node.attachments(), ...tables, node.ip("rule"), node.ip("-6", "rule")].join("\n");
}

test("200 parallel ADDs in three pools get addresses of their own, all inside of blocks of their pools; DELs at once free them all", async (t) => {
  const before = podState();
  const pools = new Map([
    ["default", "10.210.0.0/24"],
    ["second", "10.211.0.0/24"],
    ["third", "10.212.0.0/24"],
  ]);
  await node.growDefaultPool({ ipv4: "10.210.1.0/24", ipv6: "fd00:210:1::/120" });
  for (const [pool, ipv4] of pools) {
    if (pool === "default") continue;
    const spec = { blockSizeBits: 3, subnets: [{ ipv4 }] };
    await node.api.create(coilResources.addressPools, { metadata: { name: pool }, spec });
    await node.api.create(resources.namespaces, { metadata: { name: pool, annotations: { [POOL_ANNOTATION]: pool } } });
  }
  const names = [...pools.keys()];
  const attachments = namespaces(t, PARALLEL).map((netns, at) => {
    const namespace = names[at % names.length] ?? "default";
    return { containerId: `many${at}`, netns, pod: `many${at}`, namespace };
  });
  for (const { pod, namespace } of attachments) await node.createPod(pod, namespace);
  const got = await Promise.all(attachments.map((one) => node.call("Add", one)));
  assert.equal(new Set(got.map(([ipv4]) => ipv4)).size, PARALLEL, "each has an address of its own");
  const blocks = await node.blocks();
  for (const [at, addresses] of got.entries()) {
    const { namespace } = attachments[at] ?? assert.fail();
    const own = blocks.filter(({ metadata }) => metadata.labels?.["coil.cybozu.com/pool"] === namespace);
    for (const address of addresses) {
      const isInside = own.some(({ ipv4, ipv6 }) =>
        [ipv4, ipv6].some((cidr) => cidr !== undefined && Cidr.parse(cidr).contains(IpAddress.parse(address))),
      );
      assert.ok(isInside, `${address} is in no block of ${namespace}`);
    }
  }
  await Promise.all(attachments.map((one) => node.call("Del", one)));
  await until("all blocks go back", async () => (await node.blocks()).length === 0);
  await until("the kernel is as before", () => podState() === before);
});

test("a namespace's annotation that is no pool's name is refused by name, whatever it holds, and nothing is made", async (t) => {
  const [netns = ""] = namespaces(t, 1);
  for (const [at, value] of ["a:b", "$(reboot)", "'; rm -rf /", "../default", "x".repeat(64), "ü", " "].entries()) {
    const namespace = `odd-${at}`;
    await node.api.create(resources.namespaces, {
      metadata: { name: namespace, annotations: { [POOL_ANNOTATION]: value } },
    });
    await node.createPod("p", namespace);
    const adding = node.call("Add", { containerId: `odd${at}`, netns, pod: "p", namespace });
    await assert.rejects(adding, new RegExp(`namespace ${namespace}: its annotation .* is not a pool name`));
  }
  assert.deepEqual(node.attachments(), []);
  assert.deepEqual(
    (await node.blocks()).map(({ metadata }) => metadata.name),
    [],
  );
});

test("after hundreds of ADDs and DELs links, routes, rules and descriptors are as before, and memory is near", async (t) => {
  const names = namespaces(t, AT_ONCE);
  for (let at = 0; at < AT_ONCE; at += 1) await node.createPod(`soak${at}`);
  const cycle = async (at: number, round: number): Promise<void> => {
    const one = { containerId: `soak${at}-${round}`, netns: names[at] ?? "", pod: `soak${at}` };
    await node.call("Add", one);
    await node.call("Del", one);
  };
  const cycles = async (rounds: number, first: number): Promise<void> => {
    const work = async (at: number): Promise<void> => {
      for (let round = 0; round < rounds; round += 1) await cycle(at, first + round);
    };
    await Promise.all(names.map((_, at) => work(at)));
    await until("all blocks go back", async () => (await node.blocks()).length === 0);
  };
  /** Sockets are those to the API server and of callers, whose number is bounded; namespaces and files are the others. */
  const descriptors = (): { readonly sockets: number; readonly others: number } => {
    const folder = `/proc/${node.coildPid}/fd`;
    const links = readdirSync(folder).flatMap((fd) => {
      try {
        return [readlinkSync(join(folder, fd))];
      } catch (error) {
        // It was closed meanwhile, as the file is that coild opens every ten seconds to say that it serves.
        if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
        throw error;
      }
    });
    const sockets = links.filter((link) => link.startsWith("socket:")).length;
    return { sockets, others: links.length - sockets };
  };
  const rssMiB = (): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${node.coildPid}/status`, "utf8"))?.[1]) / 1024;
  await cycles(2, 0);
  const before = { state: podState(), descriptors: descriptors(), rssMiB: rssMiB() };
  await cycles(CYCLES / AT_ONCE, 2);
  await until("the kernel is as before", () => podState() === before.state);
  await until("no descriptor is left over", () => descriptors().others <= before.descriptors.others, {
    deadlineMs: 5000,
    seen: () => `${descriptors().others}, before ${before.descriptors.others}`,
  });
  const now = descriptors();
  assert.ok(now.sockets <= before.descriptors.sockets + AT_ONCE, `${now.sockets} sockets`);
  assert.ok(rssMiB() < before.rssMiB + 40, `RSS ${rssMiB()} MiB, before ${before.rssMiB}`);
});
