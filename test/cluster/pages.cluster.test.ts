/** The tutorial and the page about pods, followed as they stand on the lab that they begin with; and which test follows each page. */
import assert from "node:assert/strict";
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { startApiServer } from "#lab/api-server";
import { makeCertificates } from "#test/certificates";
import { commandsOf, type FollowOptions, follow, pagesOfOperators, sectionsOf, unitOf, withFolders } from "#test/guide";
import { isthmus, leftOf, removeLab } from "#test/lab";
import { peersMissing } from "#test/real-api-server";

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

  test("pods.md: the commands about two machines with one node name show that a node has no other", async () => {
    const [found = "", compare = ""] = commandsOf("pods.md", "Two machines with one node name");
    const [events = "", ready = ""] = found.split("\n");
    assert.doesNotMatch(await follow([events], here), /NodeNameTwin/);
    assert.match(await follow([ready], { ...onNode, words: { NODE: "127.0.0.1" } }), /^ok$/m);
    const [node = "", addresses = ""] = compare.split("; ");
    const [, internal = "none"] =
      /"(\d+\.\d+\.\d+\.\d+)","type":"InternalIP"/.exec(await follow([node], { ...here, words: { NODE: "node1" } })) ??
      [];
    assert.ok((await follow([addresses], onNode)).includes(`${internal}/`), internal);
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

test("tunnel.md: the commands for a node's unit of systemd enable and start the agent, which has its address and waits for a server", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-pages-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const { ca, pairs } = makeCertificates("tunnel", { agent: ["node"] });
  for (const [name, text] of [
    ["servers-ca.crt", ca],
    ["agent.crt", pairs.agent.cert],
    ["agent.key", pairs.agent.key],
  ] as const)
    writeFileSync(join(folder, name), text);
  using unit = unitOf(folder, "tunnel/isthmus-proxy-agent.service", (text) =>
    text.replaceAll("/etc/isthmus/tunnel", folder).replace("control-plane.example", "192.0.2.1"),
  );
  const shown = await follow(
    [
      "ip link set lo up; ip link add eth0 type veth",
      ...commandsOf("tunnel.md", "Nodes"),
      "until curl -s 'http://127.0.0.1:8093/readyz?verbose' | grep bind-interface; do sleep 0.1; done",
      "ip address show to 10.255.255.1; ip -4 route show; ip -6 route show",
    ],
    { bin: unit.bin, wrap: ["unshare", "--net", ...withFolders(unit.places)] },
  );
  assert.match(shown, /arp_ignore = 3/);
  assert.match(shown, /\[\+\]bind-interface ok/, unit.log());
  assert.match(shown, /inet 10\.255\.255\.1\/32 scope host/);
  assert.match(shown, /^unreachable 10\.255\.255\.1 *$/m);
  assert.match(shown, /^unreachable fd10:255:255::1 /m);
});

/** A command that runs another one with a folder of its own, in `folder`, for the state of tests. */
function withOwnState(folder: string): readonly string[] {
  const state = join(root, ".state");
  const [own, outer] = [mkdtempSync(join(folder, "state-")), mkdtempSync(join(folder, "outer-"))];
  for (const name of readdirSync(state).filter((one) => one.endsWith(".stamp")))
    cpSync(join(state, name), join(own, name));
  for (const name of ["debian", "debian-sid"]) symlinkSync(join(outer, name), join(own, name));
  const mounts = `mount --bind ${state} ${outer}; mount --bind ${own} ${state}; exec "$@"`;
  return ["unshare", "--mount", "--propagation=private", "sh", "-ec", mounts, "sh"];
}

/**
 * Runs a page's commands for tests, of which only claims that match run: `./run test` inside of this test. It has a folder of its own for its state, since it
 * removes what the one around it has written there.
 */
async function followTests(
  commands: readonly string[],
  folder: string,
  { claims, ...options }: FollowOptions & { readonly claims: string },
): Promise<string> {
  return follow(commands, {
    wrap: withOwnState(folder),
    ...options,
    env: {
      NODE_TEST_CONTEXT: undefined,
      // A file is a test too, by its path.
      NODE_OPTIONS: `--test-name-pattern=[.]test[.]ts$|${claims.replaceAll(" ", ".")}`,
      ...options.env,
    },
  });
}

/** The folder of ISTHMUS_PEERS. Without it our own programs stand in for Konnectivity's; those of Kubernetes are not there, so their tests are skipped. */
function peersIn(folder: string): string {
  const { ISTHMUS_PEERS: given } = process.env;
  if (given !== undefined) return given;
  for (const [name, command] of [
    ["proxy-server", join(root, "dist/proxy-server")],
    ["proxy-agent", join(root, "dist/proxy-agent")],
    ["proxy-test-client", `node ${join(root, "test/support/tunnel-page-client.ts")}`],
  ] as const)
    writeFileSync(join(folder, name), `#!/bin/sh\nexec ${command} "$@"\n`, { mode: 0o755 });
  return folder;
}

test("tunnel-interop.md, real-peers.md: the commands of the pages run the tests that they name, with the programs that they name", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-pages-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const peers = peersIn(folder);
  const words = { "/opt/konnectivity": peers, "/opt/peers": peers };
  const [matrix = "", examples = ""] = commandsOf("tunnel-interop.md", "(top)");
  // All of the matrix would be what tunnel-interop itself runs.
  const claims = "client ours: bytes come back";
  const env = { ISTHMUS_PEERS: undefined };
  const small = await followTests([matrix], folder, { claims: `server ours, agent ours ${claims}`, words, env });
  assert.match(small, /^1 passed, 0 failed, 0 skipped$/m);
  const named = await followTests([examples], folder, {
    claims: `server external, agent ours ${claims}|server ours, agent external client external`,
    words,
    env,
  });
  assert.match(named, /server external, agent ours[\s\S]*server ours, agent external/);
  assert.match(named, /client external: fetches a page/);
  assert.doesNotMatch(named, /[1-9]\d* failed/);
  const [tests = "", bench = ""] = (commandsOf("real-peers.md", "(top)")[0] ?? "").split("\n");
  const ofPeers = "seen within 1.5 s|lab on Kubernetes: Ctrl-C";
  const found = await followTests([tests], folder, { claims: ofPeers, words });
  if (process.env["ISTHMUS_PEERS"] === undefined) {
    assert.match(found, /has no etcd, kube-apiserver[\s\S]* 0 failed, 2 skipped$/m);
    return;
  }
  assert.match(found, / 0 failed, 0 skipped$/m);
  // It compares for half a minute, and our own programs have nothing to tell beside ours.
  const figures = await follow([bench], { words: { ...words, "tunnel-go.ts": "tunnel-go.ts --rounds=1 --mib=1" } });
  assert.match(figures, /^ratio [\d.]+ /m);
});

test("real-peers.md: the claims of conformance hold on the cluster that a kubeconfig names", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-pages-"));
  t.after(() => rmSync(folder, { recursive: true }));
  await using server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    log: nullLogger,
    clock: systemClock,
  });
  mkdirSync(join(folder, ".kube"));
  writeFileSync(join(folder, ".kube/config"), server.kubeconfig());
  const [command = ""] = commandsOf("real-peers.md", "The conformance claims on a cluster of yours");
  const said = await followTests([command], folder, {
    claims: "get sorts by a field",
    env: { HOME: folder },
    words: { "test conformance": "test conformance --only=reading" },
  });
  assert.match(said, /get sorts by a field[\s\S]*0 failed/);
});

test("real-peers.md: a cluster of etcd and Kubernetes' own programs is started by the commands of the page, and the claims hold there", {
  skip: peersMissing("etcd", "kube-apiserver", "kube-controller-manager"),
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-pages-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [, commands = ""] = commandsOf("real-peers.md", "The conformance claims on a cluster of yours");
  // In namespaces of its own: its ports are fixed, and what runs in the background ends with it.
  const alone = [
    "unshare",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-ec",
    'ip link set lo up; exec "$@"',
    "sh",
  ];
  const said = await follow([commands], {
    wrap: [...alone, ...withOwnState(folder)],
    bin: process.env["ISTHMUS_PEERS"] ?? "",
    words: { "/path/to/isthmus": root, "test conformance": "test conformance --only=reading" },
    env: { NODE_TEST_CONTEXT: undefined, NODE_OPTIONS: "--test-name-pattern=[.]test[.]ts$|get.sorts.by.a.field" },
  });
  assert.match(said, /get sorts by a field[\s\S]*0 failed/);
});

test("pages: each section with commands is followed by a test that reads it", () => {
  const followed = new Set(
    globSync("test/{cluster,neutron,support}/*.ts", { cwd: root }).flatMap((file) =>
      followedIn(readFileSync(join(root, file), "utf8")),
    ),
  );
  const all = pagesOfOperators().flatMap((page) =>
    [...sectionsOf(page).keys()].map((section) => `${page}: ${section}`),
  );
  assert.ok(all.length > 40, `only ${all.length} sections have commands`);
  assert.deepEqual(
    all.filter((one) => !followed.has(one)),
    [],
    "nobody follows these",
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
