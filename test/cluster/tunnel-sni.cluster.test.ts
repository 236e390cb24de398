/** docs/spec/tunnel.md#9.7 and #15.E: two clusters behind one address, distinguished by the server names of their agents. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { ISTHMUS, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { connectThrough, ProxyBed, type ProxyServerProcess } from "#test/proxies";
import { BIND, GATE, read, Sides } from "#test/tunnel-sides";

const TIMEOUT = { timeout: 90_000 };

interface Cluster {
  readonly name: string;
  readonly bed: ProxyBed;
  readonly server: ProxyServerProcess;
}

/** The server and certificates of a cluster. Its agents may reach `apiServer`. */
async function cluster(t: TestContext, sides: Sides, name: "a" | "b", apiServer: string): Promise<Cluster> {
  const bed = await ProxyBed.open({ hosts: [`${name}.tunnel.example`] });
  t.after(() => bed[Symbol.asyncDispose]());
  const server = await bed.server([GATE, "--mode=http-connect", `--allowed-destination=${apiServer}`], {
    netns: sides.name("master"),
  });
  return { name, bed, server };
}

/** The shipped router in the control plane's namespace; resolves with its port. */
async function router(t: TestContext, sides: Sides, clusters: readonly Cluster[]): Promise<number> {
  const [port, metrics, health] = [await freePort(), await freePort(), await freePort()];
  const running = start([
    ...["ip", "netns", "exec", sides.name("master"), ISTHMUS, "sni-router", `--listen=192.0.2.1:${port}`],
    ...clusters.map(({ name, server }) => `--route=${name}.tunnel.example=127.0.0.1:${server.agentPort}`),
    ...[`--metrics-addr=127.0.0.1:${metrics}`, `--health-addr=127.0.0.1:${health}`],
  ]);
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  await until("it routes", () => running.said().includes('"msg":"routing"'), { seen: running.said });
  return port;
}

const reverse = (apiServer: string): string[] => [GATE, `--bind-address=${BIND}`, `--target=6443:${apiServer}`];
const askingFor = (name: string): string => `--tls-server-name=${name}.tunnel.example`;

test(
  "sni-router: behind one address, agents of two clusters meet their own server and API server, and pass for no other",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    await sides.endpoint("master", "10.9.0.1", 6443, "api of a");
    sides.addresses("master", "lo", ["10.9.0.2/24"]);
    await sides.endpoint("master", "10.9.0.2", 6443, "api of b");
    await sides.endpoint("node1", "10.9.0.1", 8080, "node of a");
    sides.addresses("node2", "lo", ["10.9.0.1/24"]);
    await sides.endpoint("node2", "10.9.0.1", 8080, "node of b");
    const [a, b] = [await cluster(t, sides, "a", "10.9.0.1:6443"), await cluster(t, sides, "b", "10.9.0.2:6443")];
    const agentPort = await router(t, sides, [a, b]);
    sides.shut(agentPort);

    const ofA = await sides.agent("node1", { agentPort, bed: a.bed }, askingFor("a"), ...reverse("10.9.0.1:6443"));
    await sides.agent("node2", { agentPort, bed: b.bed }, askingFor("b"), ...reverse("10.9.0.2:6443"));
    // The same bind address on both nodes leads each to its own cluster.
    (await sides.reach("node1", BIND, 6443, "api of a")).destroy();
    (await sides.reach("node2", BIND, 6443, "api of b")).destroy();
    for (const { bed, server, name } of [a, b]) {
      const socket = await bed.dial(server.udsPath);
      assert.match(await connectThrough(socket, "10.9.0.1:8080"), /^HTTP\/1\.1 200 /);
      assert.equal(await read(socket, 9), `node of ${name}`);
      socket.destroy();
    }
    await ofA.stop();
    await until("a's agent is gone", async () => (await a.server.metric("server_ready_backend_connections")) === 0);

    // Certificates and destinations of a, but b's server name: each side refuses the other.
    for (const trust of [[], [`--ca-cert=${b.bed.path("ca.crt")}`]]) {
      const intruder = await sides.startAgent(
        "node1",
        { agentPort, bed: a.bed },
        askingFor("b"),
        ...reverse("10.9.0.2:6443"),
        ...trust,
      );
      await until("it was refused twice", () => intruder.said("cannot connect to a proxy server").length >= 2, {
        seen: intruder.running.said,
      });
      const { how } = await sides.reset("node1", BIND, 6443);
      assert.equal(how, "ECONNRESET");
      await intruder.stop();
    }
    assert.equal(await b.server.metric("server_ready_backend_connections"), 1);
    assert.equal(await b.server.metric('server_reverse_dials_total{result="ok"}'), 1);

    // An agent with the right certificate reaches what its own server allows, and nothing of the other cluster.
    await sides.agent("node1", { agentPort, bed: a.bed }, askingFor("a"), ...reverse("10.9.0.2:6443"));
    assert.equal((await sides.reset("node1", BIND, 6443)).how, "ECONNRESET");
    assert.equal(await a.server.metric('server_reverse_dials_total{result="denied"}'), 1);
  },
);
