/** The tutorial and the page about pods, followed as they stand on the lab that they begin with; and which test follows each page. */
import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { commandsOf, follow, pagesOfOperators, sectionsOf } from "#test/guide";
import { isthmus, leftOf, removeLab } from "#test/lab";

const root = join(import.meta.dirname, "../..");
/** The name of a lab that has none, as in the pages. */
const LAB = "lab";
/** The file that the tutorial writes into the checkout, in which its commands run. */
const KUBECONFIG = join(root, "lab.kubeconfig");
const SOCKET = `/run/isthmus/lab-${LAB}/node1/coild.sock`;
const REFUSED = `apiVersion: v1
kind: Namespace
metadata: { name: refused, annotations: { coil.cybozu.com/pool: nope } }
---
apiVersion: v1
kind: Pod
metadata: { name: web, namespace: refused }
spec: { containers: [{ name: c, image: none }] }
`;

/** Sections whose commands no test reads from the page, each with the test that runs the same programs; some would install on this machine. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  "debug-a-pod.md: What can this kernel do?": "test/cluster/doctor.cluster.test.ts",
  "doctor.md: (top)": "test/cluster/doctor.cluster.test.ts",
  "debug-nics.md: What is wrong with the cloud, or a node?": "test/neutron/live.neutron.test.ts",
  "debug-nics.md: Does everything agree?": "test/neutron/live.neutron.test.ts",
  "image.md: (top)": "test/cluster/image.cluster.test.ts",
  "image.md: Two builds are equal": "test/cluster/image.cluster.test.ts",
  "image.md: Try it before it is on a cluster": "test/cluster/image.cluster.test.ts",
  "lab-on-a-cluster.md: (top)": "test/cluster/lab-guest.cluster.test.ts",
  "lab-on-a-cluster.md: Rights": "test/cluster/lab-guest.cluster.test.ts",
  "package.md: For Debian": "test/cluster/package.cluster.test.ts",
  "package.md: For npm": "test/cluster/package.cluster.test.ts",
  "real-peers.md: (top)": "test/cluster/real-outage.cluster.test.ts",
  "real-peers.md: The conformance claims on a cluster of yours": "test/cluster/real-outage.cluster.test.ts",
  "tunnel-interop.md: (top)": "test/cluster/tunnel-interop.cluster.test.ts",
  "tunnel.md: (top)": "test/cluster/lab-tunnel.cluster.test.ts",
  "tunnel.md: Nodes": "test/cluster/manifests.cluster.test.ts",
  "tunnel.md: Does it work?": "test/cluster/lab-tunnel.cluster.test.ts",
  "uplink-proxy.md: (top)": "test/cluster/lab-uplinks.cluster.test.ts",
  "uplink-proxy.md: Install on plain Linux": "test/cluster/uplink-choice.cluster.test.ts",
  "uplink-proxy.md: Settings": "test/cluster/uplink-choice.cluster.test.ts",
};

describe("a lab that is kept", () => {
  /** On the machine, or on a node of the lab. */
  const here = { kubeconfig: KUBECONFIG };
  const onNode = {
    kubeconfig: `/run/isthmus/lab-${LAB}/kubeconfig-nodes`,
    wrap: ["nsenter", `--net=/run/netns/isthmus-${LAB}-node1`],
  };

  after(async () => {
    await removeLab(LAB);
    rmSync(KUBECONFIG, { force: true });
  });

  test("first-steps: all commands of the tutorial work one after the other, up to the removal", async () => {
    const [keep = "", ...rest] = commandsOf("first-steps.md", "Keep a cluster");
    assert.match(await follow([keep], here), /all is well: 3 nodes, 12 pods/);
    const shown = await follow(
      [
        ...rest,
        ...commandsOf("first-steps.md", "Inside a pod, inside a node"),
        ...commandsOf("first-steps.md", "More pods, a pool of your own"),
      ],
      here,
    );
    assert.match(shown, /addressblock\.coil\.cybozu\.com\/dual-0/);
    assert.match(shown, /one +1\/1 +Running .* 10\.102\.0\.\d+/);
    const [kill = "", ...more] = commandsOf("first-steps.md", "Kill something");
    assert.deepEqual(more, []);
    const [killed = "", audit = ""] = kill.split("\n");
    await follow([killed], here);
    // "If the socket is not there yet, repeat the audit."
    assert.match(await follow([`until ${audit}; do sleep 0.2; done`], here), /no findings|agree/);
  });

  test("debug-a-pod: the commands of the page tell why a pod has no address, and where one's traffic goes", async () => {
    await follow([`kubectl apply -f - <<'YAML'\n${REFUSED}YAML`], here);
    const [describeIt = "", message = "", log = ""] = commandsOf("debug-a-pod.md", "The pod has no address");
    const [told = ""] = message.split(":", 2).slice(1);
    const failed = await follow([`until ${describeIt} | grep -q '${told.trim()}'; do sleep 0.2; done`, describeIt], {
      ...here,
      words: { POD: "-n refused web" },
    });
    assert.ok(failed.includes(message), `${failed} has not "${message}"`);
    assert.match(await follow([log], here), /pool nope does not exist/);
    const address = await follow(["kubectl get pods -n dual -o jsonpath='{.items[0].status.podIP}'"], here);
    const [routes = "", links = "", others = ""] = commandsOf(
      "debug-a-pod.md",
      "The pod has an address and is not reached",
    );
    const seen = await follow([routes, links, others], { ...onNode, words: { "10.101.0.16": address } });
    assert.match(seen, /^default-0 +node\d/m);
    const [audit = ""] = commandsOf("debug-a-pod.md", "Does everything agree?");
    await follow([audit], { ...here, words: { FILE: KUBECONFIG, "/run/coild.sock": SOCKET } });
  });

  test("pods.md: the commands for a Node that is deleted work on a node", async () => {
    const [look = ""] = commandsOf("pods.md", "A Node that is deleted");
    const shown = await follow([look], { ...onNode, words: { NODE: "127.0.0.1" } });
    assert.match(shown, /^ok$/m);
  });

  test("first-steps: the last command removes the lab, and nothing is left", async () => {
    await follow(commandsOf("first-steps.md", "Remove the lab"), here);
    assert.deepEqual(leftOf(LAB), []);
    assert.equal((await isthmus(["lab", "kubeconfig"])).code, 1);
  });
});

test("tunnel.md, load-balancer-health-checks.md: commands for the machine's own network work in one of their own", async () => {
  const own = { wrap: ["unshare", "--net"] };
  const address = await follow([...commandsOf("tunnel.md", "Control plane"), "ip address show lo"], own);
  assert.match(address, /inet 10\.255\.255\.1\/32 scope host lo/);
  const filter = "nft 'add table inet filter; add chain inet filter input { type filter hook input priority 0; }'";
  const rules = await follow(
    [filter, ...commandsOf("load-balancer-health-checks.md", "Network"), "nft list ruleset"],
    own,
  );
  assert.match(rules, /tcp dport \{ 10256, 30000-32767 \} accept/);
});

test("pages: each section with commands is followed by a test that reads it, or has a test of its own", () => {
  const followed = new Set(
    globSync("test/{cluster,neutron}/*.test.ts", { cwd: root }).flatMap((file) =>
      followedIn(readFileSync(join(root, file), "utf8")),
    ),
  );
  const all = pagesOfOperators().flatMap((page) =>
    [...sectionsOf(page).keys()].map((section) => `${page}: ${section}`),
  );
  assert.ok(all.length > 40, `only ${all.length} sections have commands`);
  assert.deepEqual(
    all.filter((one) => !followed.has(one) && ELSEWHERE[one] === undefined),
    [],
    "nobody follows these",
  );
  assert.deepEqual(
    Object.entries(ELSEWHERE).filter(
      ([one, file]) => !all.includes(one) || followed.has(one) || !existsSync(join(root, file)),
    ),
    [],
    "these are followed, or are not there",
  );
});

/** The sections that a test follows: `"PAGE", "SECTION"`, or `run("SECTION")` in a test whose name begins with the page. */
function followedIn(source: string): string[] {
  const named = [...source.matchAll(/"([\w-]+\.md)",\s*"([^"]+)"/g)].map(([, page, section]) => `${page}: ${section}`);
  const tests = source.split(/^ *test\("/m).flatMap((text) => {
    const [, page] = /^([\w-]+\.md): /.exec(text) ?? [];
    return page === undefined
      ? []
      : [...text.matchAll(/\brun\("([^"]+)"/g)].map(([, section]) => `${page}: ${section}`);
  });
  return [...named, ...tests];
}
