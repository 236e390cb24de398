/**
 * `coild` as shipped, killed after each single thing that it writes into the kernel for a client of an Egress: after each third one, from a random
 * one of the first three on, unless ISTHMUS_SOAK=full.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { type Pod, resources } from "#kube/client";
import { EGRESS, NEAR, openEgressNode } from "#test/egress-node";
import { until } from "#test/lab";
import { KernelWrites } from "#test/writes";

const FLAGS = ["--backend=nftables", "--enable-originating-only"];
const POD = "client";
const STRIDE = process.env["ISTHMUS_SOAK"] === "full" ? 1 : 3;

/** Everything in the kernel that a pod has, as lines. Numbers and addresses that the kernel chooses are left out. */
function stateOf(podSpace: string, nodeSpace: string): string {
  const inside = (space: string, ...command: readonly string[]): string[] =>
    execFileSync("nsenter", [`--net=/run/netns/${space}`, ...command], { encoding: "utf8" })
      // A set of nftables has no order.
      .replace(/elements = \{([^}]*)\}/g, (_, elements: string) =>
        elements
          .split(",")
          .map((element) => `element ${element.trim()}`)
          .sort()
          .join("\n"),
      )
      .split("\n");
  const views = [
    ["ip", "-d", "-o", "link"],
    ["ip", "-o", "address"],
    ...["-4", "-6"].flatMap((family) => [
      ["ip", family, "rule"],
      ["ip", family, "route", "show", "table", "all"],
      ["ip", family, "neighbour", "show", "nud", "permanent"],
    ]),
    ["nft", "list", "ruleset"],
  ];
  const seen = views.flatMap((view) => inside(podSpace, ...view));
  // An interface that was made a second time has another number, and with it its mark and table.
  const [, number = ""] = seen.map((line) => /^(\d+): eth0@/.exec(line)).find((found) => found !== null) ?? [];
  const numbered = new RegExp(`\\b(mark |fwmark 0x|0x0*|table 1000|lookup 1000)${number}\\b`, "g");
  const own = Number(number) < 10 ? numbered : assert.fail(`eth0 has number ${number}`);
  const pod = seen.map((line) => line.replace(/\b(table|lookup) 100(?=\d\b)/g, "$1 1000").replace(own, "$1N"));
  // Nor is it fixed which free address a pod gets.
  const addresses = seen.flatMap((line) => /^\d+: eth0\s+inet6? (\S+)\/\d+ scope global/.exec(line)?.[1] ?? []);
  const isPods = (line: string): boolean => /COIL|veth|table 11[69]/.test(line);
  const node = views.flatMap((view) => inside(nodeSpace, ...view)).filter(isPods);
  const plain = (line: string): string =>
    addresses
      .reduce(
        (text, address, at) => text.replace(new RegExp(`(?<![\\w:.])${address}(?![\\w:.])`, "g"), `ADDRESS${at}`),
        line,
      )
      .replace(/^\d+: /, "")
      .replace(/@if\d+/g, "@peer")
      .replace(/link-netnsid \d+|link-netns \S+/g, "")
      // The interface's own; those of tunnels are functions of their peers.
      .replace(/(?<=eth0.*link\/ether )\S+|(?<=veth.*link\/ether )\S+|fe80::[0-9a-f:]+/g, "OWN")
      .replace(/lladdr (?!fe:)\S+/, "lladdr OWN")
      .replace(/(valid_lft|preferred_lft|expires) \S+|tentative|noprefixroute/g, "")
      .replace(/\s+/g, " ")
      .trim();
  return [...pod, "node:", ...node]
    .map(plain)
    .filter((line) => line !== "")
    .join("\n");
}

/** The lines that only one of two states has. */
function difference(actual: string, wanted: string): readonly string[] {
  const [one, other] = [actual.split("\n"), wanted.split("\n")];
  return [
    ...one.filter((line) => !other.includes(line)).map((line) => `+ ${line}`),
    ...other.filter((line) => !one.includes(line)).map((line) => `- ${line}`),
    ...(one.length === other.length ? [] : [`${one.length} lines, not ${other.length}`]),
  ];
}

test("coild killed after each write of a client's ADD, and after each one of its removal: the next ADD and the next start make what undisturbed ones make", async (t) => {
  const bed = await openEgressNode(t, { more: FLAGS });
  const { node } = bed;
  const writes = new KernelWrites(node.folder);
  node.coildEnv = writes.env;
  const restart = async (): Promise<void> => {
    await node.killCoild();
    await node.startCoild(...bed.coildFlags);
  };
  await restart();
  await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
  await bed.makeService();
  const state = (): string => stateOf(bed.space(POD), node.netns);
  const isWell = (added: Awaited<ReturnType<typeof bed.add>>): void =>
    assert.equal(added.code, 0, JSON.stringify(added));
  const tell = async (pod: Pod, { json }: Awaited<ReturnType<typeof bed.add>>): Promise<void> => {
    const podIPs = ((json?.["ips"] ?? []) as readonly { readonly address: string }[]).map(({ address }) => ({
      ip: address.split("/")[0] ?? "",
    }));
    await node.api.replaceStatus(resources.pods, { ...pod, status: { phase: "Running", podIPs } });
  };
  /** DEL, and the network namespace and the Pod go. */
  const remove = async (): Promise<void> => {
    assert.equal((await bed.del(POD)).code, 0);
    bed.dropSpace(POD);
    await node.api.delete(resources.pods, { namespace: "default", name: POD });
  };

  const first = await bed.makePod(POD, EGRESS.name);
  writes.watch();
  const undisturbed = await bed.add(POD);
  const made = writes.end();
  isWell(undisturbed);
  await tell(first, undisturbed);
  const wanted = state();
  for (const part of [/nat_/, /^1000: .*fwmark/m, /table 117|table 118/, /coil-output-eth0/, /COIL/])
    assert.match(wanted, part);
  writes.watch();
  await bed.annotate(POD, null);
  await until("nothing is left of the client", () => bed.leftIn(POD) === "" && !/^1000:/m.test(state()));
  const unmade = writes.end();
  const removed = state();
  await remove();
  t.diagnostic(`${made.length} writes make a pod with its client, ${unmade.length} remove the client`);
  assert.ok(made.length > 40 && unmade.length > 20, `${made.length} and ${unmade.length}`);

  const start = 1 + Math.floor(Math.random() * STRIDE);
  t.diagnostic(`killed after write ${start} and each ${STRIDE}. of those that follow`);
  for (let killAfter = start; killAfter <= made.length; killAfter += STRIDE) {
    const at = `killed after write ${killAfter} of ADD (${made[killAfter - 1]})`;
    const pod = await bed.makePod(POD, EGRESS.name);
    writes.watch({ killAfter });
    assert.notEqual((await bed.add(POD)).code, 0, at);
    await node.coildEnded();
    assert.equal(writes.end().length, killAfter, `${at}: ${node.said().slice(-4000)}`);
    await restart();
    const added = await bed.add(POD);
    isWell(added);
    assert.deepEqual(difference(state(), wanted), [], at);
    if (killAfter <= unmade.length) {
      await tell(pod, added);
      const what = `killed after write ${killAfter} of a removal (${unmade[killAfter - 1]})`;
      writes.watch({ killAfter });
      await bed.annotate(POD, null);
      await until(what, () => node.isCoildGone, { everyMs: 5 });
      writes.end();
      await restart();
      await until(what, () => state() === removed, {
        everyMs: 50,
        seen: () => difference(state(), removed).join("\n"),
      });
    }
    await remove();
  }
  assert.doesNotMatch(node.said(), /because of a bug/);
});
