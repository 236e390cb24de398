import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { openKernel } from "#kernel/net";

/** The folder from which names of modules are resolved. */
const ROOT = join(import.meta.dirname, "../../../..");
/** The rules that dockerd 28 writes, for IPv4. */
const DOCKER = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-BRIDGE - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER ! -i docker0 -o docker0 -j DROP
-A DOCKER-BRIDGE -o docker0 -j DOCKER
-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
COMMIT
`;
/** The part of ufw's rules that forwarded packets meet, with its policy DROP. */
const UFW = `*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:ufw-before-forward - [0:0]
:ufw-user-forward - [0:0]
:ufw-reject-forward - [0:0]
:ufw-track-forward - [0:0]
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-reject-forward
-A FORWARD -j ufw-track-forward
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
COMMIT
`;
/** As firewalld has it: the base chain accepts, and its last rule refuses. */
const FIREWALLD = `table inet firewalld {
  chain filter_FORWARD {
    type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    reject with icmpx admin-prohibited
  }
}
`;

/** A namespace with filters, and what is found in it of a pod. */
function namespace(t: TestContext) {
  const kernel = openKernel();
  const name = `isthmus-t${process.pid}-fw-${Math.random().toString(36).slice(2, 7)}`;
  kernel.createNetNs(name)[Symbol.dispose]();
  t.after(() => kernel.deleteNetNs(name));
  const run = (input: string, ...words: readonly string[]): string =>
    execFileSync("ip", ["netns", "exec", name, ...words], { input, encoding: "utf8", cwd: ROOT });
  const inputScript = `
    import { openKernel } from "#kernel/net";
    import { readInput } from ${JSON.stringify(pathToFileURL(join(import.meta.dirname, "read.ts")).href)};
    const found = await readInput([10256], { netns: openKernel().openNetNs("own"), uplink: "eth0" }, { signal: new AbortController().signal });
    console.log(JSON.stringify(found));`;
  const script = `
    import { Cidr, IpAddress } from "#base/ip";
    import { openKernel } from "#kernel/net";
    import { readForward } from ${JSON.stringify(pathToFileURL(join(import.meta.dirname, "read.ts")).href)};
    const block = Cidr.parse("10.1.0.0/27");
    const found = await readForward([{ address: IpAddress.parse("10.1.0.2"), link: "veth0a", block }], { netns: openKernel().openNetNs("own"), uplink: "eth0" }, { signal: new AbortController().signal });
    console.log(JSON.stringify(found));`;
  return {
    run,
    /** The ports that are not reached, as `filter: family port outcome`, and the commands that let packets pass. */
    input() {
      const text = run("", process.execPath, "--input-type=module", "--eval", inputScript);
      const all = JSON.parse(text) as readonly Readonly<
        Record<"filter" | "family" | "port" | "outcome" | "allow", string>
      >[];
      const bad = all.filter(({ outcome }) => outcome !== "accepted");
      return {
        texts: bad.map(({ filter, family, port, outcome }) => `${filter}: IPv${family} ${port} ${outcome}`),
        allow: bad.map(({ allow }) => allow),
      };
    },
    /** The packets that are not accepted, as \`direction filter: outcome\`, and the commands that let them pass. */
    found() {
      const text = run("", process.execPath, "--input-type=module", "--eval", script);
      const all = JSON.parse(text) as readonly Readonly<Record<"filter" | "direction" | "outcome" | "allow", string>>[];
      const bad = all.filter(({ outcome }) => outcome !== "accepted");
      return {
        texts: bad.map(({ filter, direction, outcome }) => `${direction} ${filter}: ${outcome}`),
        allow: bad.map(({ allow }) => allow),
      };
    },
  };
}

for (const [who, variant, rules] of [
  ["docker", "nf_tables", DOCKER],
  ["ufw", "nf_tables", UFW],
  ["docker", "legacy", DOCKER],
] as const)
  test(`readForward: the rules of ${who} (${variant}) drop what pods send and get, until the lines that it names are there`, (t) => {
    const { run, found } = namespace(t);
    assert.deepEqual(found().texts, [], "a node without filters");
    run(rules, `iptables-${variant === "legacy" ? "legacy" : "nft"}-restore`);
    const { texts, allow } = found();
    const chain = `iptables (${variant}), chain FORWARD`;
    assert.deepEqual(texts, [`from ${chain}: dropped`, `to ${chain}: dropped`]);
    for (const line of allow) {
      const [command = "", ...words] = line.split(" ");
      run("", `${command}-${variant === "legacy" ? "legacy" : "nft"}`, ...words);
    }
    assert.deepEqual(found().texts, []);
  });

test("readForward: a base chain of nftables whose last rule refuses drops, until the lines that it names are there", (t) => {
  const { run, found } = namespace(t);
  run(FIREWALLD, "nft", "-f", "-");
  const chain = "nftables table inet firewalld, chain filter_FORWARD";
  const { texts, allow } = found();
  assert.deepEqual(texts, [`from ${chain}: dropped`, `to ${chain}: dropped`]);
  for (const line of allow) run("", ...line.split(" "));
  assert.deepEqual(found().texts, []);
});

test("readInput: ufw's policy and a base chain that drops keep strangers from a port, until the lines that it names are there", (t) => {
  const { run, input } = namespace(t);
  assert.deepEqual(input().texts, [], "a node without filters");
  run(UFW, "iptables-nft-restore");
  run(
    "table inet own { chain in { type filter hook input priority 5; policy drop; tcp dport 22 accept; }; }",
    "nft",
    "-f",
    "-",
  );
  const { texts, allow } = input();
  assert.deepEqual(texts, [
    "iptables (nf_tables), chain INPUT: IPv4 10256 dropped",
    "nftables table inet own, chain in: IPv4 10256 dropped",
    "nftables table inet own, chain in: IPv6 10256 dropped",
  ]);
  for (const line of new Set(allow)) run("", ...line.replace(/^iptables /, "iptables-nft ").split(" "));
  assert.deepEqual(input().texts, []);
});
