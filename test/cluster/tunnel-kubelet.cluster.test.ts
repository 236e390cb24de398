/** docs/spec/tunnel.md#15.E: connections between a kubelet and its API server in both directions, with all direct ones dropped. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { WebSocket } from "ws";
import { IpAddress } from "#base/ip";
import { connectInside, request, secure } from "#lab/inside";
import { until } from "#test/lab";
import { KubeletWorld } from "#test/tunnel-kubelet";
import { BIND, BIND6, GATE, Sides } from "#test/tunnel-sides";

const TIMEOUT = { timeout: 90_000 };

const NODE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "node1" },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.11" }] },
};
const POD = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "a", namespace: "default" },
  spec: { nodeName: "node1", containers: [{ name: "c", image: "registry.invalid/c:1" }] },
};
/** The rights of the node. */
const ROLE = [
  "create clusterrole node --verb=get,list,watch,create,patch --resource=nodes,nodes/status,pods,pods/status",
  "create clusterrolebinding nodes --clusterrole=node --group=system:nodes",
  "create clusterrole viewer --verb=get,list --resource=pods",
  "create clusterrolebinding dev --clusterrole=viewer --user=dev",
].map((line) => line.split(" "));

/** Processes with these words on their command line. */
function processesWith(words: string): string[] {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").startsWith(words);
    } catch (error) {
      // The process has ended meanwhile.
      if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return false;
      throw error;
    }
  });
}

test(
  "tunnel: a kubelet that knows only its bind address joins, watches and is exec'd into, past a firewall both ways",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    const server = await sides.server("--allowed-destination=10.9.0.1:6443", "--mode=http-connect");
    const world = await KubeletWorld.open(t, sides, server);
    sides.shut(server.agentPort);
    await sides.agent("node1", server, GATE, `--bind-address=${BIND},${BIND6}`, "--target=6443:10.9.0.1:6443");
    assert.deepEqual(
      await Promise.all([sides.fate("node1", "192.0.2.1", 6443), sides.fate("master", "192.0.2.11", 10_250)]),
      ["timeout", "timeout"],
    );
    for (const args of ROLE) assert.equal((await world.admin(...args)).code, 0, args.join(" "));

    // It joins by one address family, and watches by the other.
    const joined = await world.onNode(`https://${BIND}:6443`, "create", "-f", world.file("node", NODE)).ended;
    assert.deepEqual([joined.code, joined.stdout], [0, "node/node1 created\n"], joined.stderr);
    const status = await world.onNode(
      ...([`https://${BIND}:6443`, "patch", "node", "node1", "--subresource=status", "--type=merge"] as const),
      `--patch=${JSON.stringify({ status: NODE.status })}`,
    ).ended;
    assert.equal(status.code, 0, status.stderr);
    const watch = world.onNode(
      ...([`https://[${BIND6}]:6443`, "get", "pods", "--watch", "--output=name"] as const),
      "--field-selector=spec.nodeName=node1",
    );
    await until("it watches", async () => (await server.metric("server_reverse_connections")) > 0);
    assert.equal((await world.admin("create", "-f", world.file("pod", POD))).code, 0);
    await until("the watch tells of the pod", () => watch.printed().includes("pod/a\n"), { seen: watch.printed });

    // exec uses the other direction of the same link.
    const before = await server.metric("server_dial_duration_seconds_count");
    const command = ["exec", "a", "--", "sh", "-c", 'echo "$WHO"; ip -o -4 address show eth0; echo fault >&2; exit 3'];
    const ran = await world.admin(...command);
    assert.equal(ran.code, 3);
    assert.match(ran.stdout, /^pod a\n\d+: eth0 +inet 198\.51\.100\.2\/24 /);
    assert.equal(ran.stderr, "fault\ncommand terminated with exit code 3\n");
    assert.equal(await server.metric("server_dial_duration_seconds_count"), before + 1);
    watch.child.kill();
    await watch.ended;
    await until("nothing is open", async () => (await server.metric("server_reverse_connections")) === 0);
  },
);

test(
  "exec: input of megabytes comes back whole, a client that goes takes its command along, and rights count",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    const server = await sides.server("--mode=http-connect");
    const world = await KubeletWorld.open(t, sides, server);
    await sides.agent("node1", server);
    for (const args of ROLE) assert.equal((await world.admin(...args)).code, 0, args.join(" "));
    world.api.seed([NODE, POD]);

    const bytes = randomBytes(3 << 20);
    const { code, stdout, stderr } = await world.feed(bytes, "exec", "-i", "a", "--", "sha256sum");
    assert.deepEqual([code, stdout.split(" ")[0]], [0, createHash("sha256").update(bytes).digest("hex")], stderr);

    const marker = `sleep 86${process.pid}`;
    const long = world.kubectl("root", "exec", "a", "--", ...marker.split(" "));
    await until("it runs", () => processesWith(marker).length === 1);
    long.child.kill("SIGKILL");
    await until("it has ended", () => processesWith(marker).length === 0);

    const refused = await world.kubectl("dev", "exec", "a", "--", "id").ended;
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /pods "a" is forbidden: User "dev" cannot \w+ resource "pods\/exec" in API group ""/);
    const cases = [
      [["exec", "b", "--", "id"], /pods "b" not found/],
      [["exec", "a", "-c", "x", "--", "id"], /container x is not valid for pod a|container not found/],
      [["exec", "a", "--", "/no/such/program"], /cannot be started: spawn \/no\/such\/program ENOENT/],
    ] as const;
    for (const [args, words] of cases) {
      const failed = await world.admin(...args);
      assert.equal(failed.code, 1, args.join(" "));
      assert.match(failed.stderr, words, args.join(" "));
    }
  },
);

test("exec: a terminal has the size that its client gives it, in both versions of the protocol", TIMEOUT, async (t) => {
  const sides = await Sides.open(t);
  const server = await sides.server("--mode=http-connect");
  const world = await KubeletWorld.open(t, sides, server);
  await sides.agent("node1", server);
  world.api.seed([NODE, POD]);
  for (const protocol of ["v5.channel.k8s.io", "v4.channel.k8s.io"]) {
    const open = (query: string) => {
      const url = `${world.api.urls[0]?.replace("https:", "wss:")}/api/v1/namespaces/default/pods/a/exec?${query}`;
      const headers = { authorization: "Bearer root" };
      const socket = new WebSocket(url, protocol, { headers, ca: world.api.ca ?? "" });
      t.after(() => socket.terminate());
      const said = new Map<number, string>();
      socket.on("message", (message: Buffer) => {
        const channel = message[0] ?? -1;
        said.set(channel, (said.get(channel) ?? "") + message.toString("utf8", 1));
      });
      return { socket, said };
    };
    const { socket, said } = open("command=sh&stdin=true&stdout=true&tty=true");
    await until("the shell waits", () => (said.get(1) ?? "") !== "", { seen: () => JSON.stringify([...said]) });
    assert.equal(socket.protocol, protocol);
    socket.send(Buffer.from(`\x04${JSON.stringify({ Width: 101, Height: 43 })}`));
    await until("the terminal has its size", () => {
      socket.send(Buffer.from("\0stty size\n"));
      return (said.get(1) ?? "").includes("43 101");
    });
    socket.send(Buffer.from("\0exit 5\n"));
    await until("it has ended", () => said.has(3));
    assert.match(said.get(3) ?? "", /"reason":"ExitCode","message":"5"/);
    await until("the connection is closed", () => socket.readyState === WebSocket.CLOSED);

    // A command without input is not ended for that.
    const mute = open("command=sh&command=-c&command=sleep%201%3B%20tty%3B%20echo%20done&stdout=true&tty=true");
    await until("it has ended", () => mute.said.has(3));
    assert.match(mute.said.get(1) ?? "", /^\/dev\/pts\/\d+\r\ndone\r\n$/);
    assert.match(mute.said.get(3) ?? "", /"status":"Success"/);
  }
});

/** The endpoints of the service `kubernetes`, as kube-apiserver's own reconciler writes them. */
function ownSlice(addresses: readonly string[]): object {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "kubernetes", namespace: "default", labels: { "kubernetes.io/service-name": "kubernetes" } },
    addressType: "IPv4",
    ports: [{ name: "https", port: 6443, protocol: "TCP" }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  };
}

for (const reconciler of ["none", "lease"] as const) {
  test(
    `tunnel: with --endpoint-reconciler-type=${reconciler} the service kubernetes leads pods to their node's agent`,
    TIMEOUT,
    async (t) => {
      const sides = await Sides.open(t);
      const server = await sides.server("--allowed-destination=10.9.0.1:6443");
      const world = await KubeletWorld.open(t, sides, server);
      sides.shut(server.agentPort);
      await sides.agent("node1", server, GATE, `--bind-address=${BIND}`, "--target=6443:10.9.0.1:6443");
      for (const args of ROLE) assert.equal((await world.admin(...args)).code, 0, args.join(" "));
      const reader = "create clusterrole slices --verb=get,list,watch --resource=endpointslices.discovery.k8s.io";
      assert.equal((await world.admin(...reader.split(" "))).code, 0);
      const binding = "create clusterrolebinding slices --clusterrole=slices --group=system:nodes";
      assert.equal((await world.admin(...binding.split(" "))).code, 0);

      // As kube-proxy does: read the slice through the bind address, and translate the service's address to it.
      const program = async (): Promise<number> => {
        const get = ["get", "endpointslices", "kubernetes", "--namespace=default", "--output=json"];
        const { code, stdout, stderr } = await world.onNode(`https://${BIND}:6443`, ...get).ended;
        assert.equal(code, 0, stderr);
        const { endpoints, ports }: { endpoints: { addresses: string[] }[]; ports: { port: number }[] } =
          JSON.parse(stdout);
        const verdicts = endpoints.map(({ addresses }) => `dnat to ${addresses[0]}:${ports[0]?.port}`);
        sides.nft("node1", [
          "table ip services",
          "delete table ip services",
          "table ip services {",
          "chain prerouting { type nat hook prerouting priority dstnat;",
          `ip daddr 10.96.0.1 tcp dport 443 ${verdicts[0] ?? "drop"}`,
          "}",
          "}",
        ]);
        return verdicts.length;
      };
      const ofPod = async (): Promise<string> => {
        const address = IpAddress.parse("10.96.0.1");
        const options = { timeoutMs: 2000 };
        const plain = await connectInside({ name: sides.name("pod1") }, { address, port: 443 }, options);
        const socket = await secure(plain, { host: BIND, ca: world.api.ca }, options);
        const headers = { authorization: "Bearer node" };
        return (await request(socket, { path: "/version", host: BIND, headers }, options)).body;
      };

      const slice =
        reconciler === "none"
          ? join(import.meta.dirname, "../../deploy/tunnel/kubernetes-endpointslice.yaml")
          : world.file("slice", ownSlice([BIND]));
      const applied = await world.admin("apply", "--server-side", "-f", slice);
      assert.equal(applied.code, 0, applied.stderr);
      assert.equal(await program(), 1);
      assert.match(await ofPod(), /"gitVersion"/);
      if (reconciler === "none") return;

      // One of several API servers stops in order and removes the shared address, until another one renews it.
      assert.equal((await world.admin("apply", "--server-side", "-f", world.file("empty", ownSlice([])))).code, 0);
      assert.equal(await program(), 0);
      await assert.rejects(ofPod(), { name: "InsideError", code: "timeout" });
      assert.equal((await world.admin("apply", "--server-side", "-f", slice)).code, 0);
      assert.equal(await program(), 1);
      assert.match(await ofPod(), /"gitVersion"/);
    },
  );
}
