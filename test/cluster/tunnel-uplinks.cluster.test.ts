/** The page's agent behind `uplink-proxy`, by CONNECT and in transparent mode: the tunnel carries connections over the cheap uplink, and over the other one when that is lost. */
import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { fenceOf } from "#test/guide";
import { until } from "#test/lab";
import { connectThrough, ProxyBed } from "#test/proxies";
import { openUplinkBed, SERVER4 } from "#test/uplink-bed";

const PAGE = "guides/tunnel.md";
const PORT = 8091;
/** The failover takes 45 s, most of it the patience with silence. */
const FULL = process.env["ISTHMUS_SOAK"] === "full";
/** Less than the page says, so that a lost uplink is noticed within the test. */
const QUICK = "--keepalive-time=1s";

/** Variables of the drop-in of the page. */
function dropIn(): Readonly<Record<string, string>> {
  const lines = fenceOf(PAGE, "ini").matchAll(/^Environment=(\w+)=(.*)$/gm);
  return Object.fromEntries(Array.from(lines, ([, name = "", value = ""]) => [name, value]));
}

const WAYS = {
  CONNECT: () => ({ settings: {}, env: dropIn() }),
  "transparent mode": () => ({ settings: JSON.parse(fenceOf(PAGE, "json")) as Record<string, unknown>, env: {} }),
};

for (const [name, way] of Object.entries(WAYS)) {
  test(`an agent behind uplink-proxy, by ${name}: the tunnel is over the cheap uplink${FULL ? ", and over the other one when that is lost" : ""}`, {
    timeout: 60_000,
  }, async (t) => {
    const { settings, env } = way();
    const one = await openUplinkBed(t, { ...settings, tunnel: { firstByteTimeoutMs: 1000 } });
    await using bed = await ProxyBed.open({ hosts: [`${SERVER4}`] });
    const server = await bed.server(["--mode=http-connect"]);
    // The server of both WANs: from there on it is the same network.
    for (const wan of [one.bed.wan0, one.bed.wan1])
      wan.listen(
        createServer((near) => {
          const far = connect(server.agentPort, "127.0.0.1");
          for (const [socket, other] of [
            [near, far],
            [far, near],
          ] as const)
            socket.on("error", () => undefined).on("close", () => other.destroy());
          near.pipe(far).pipe(near);
        }),
        PORT,
      );
    if ("transparent" in settings) {
      const isRedirected = async (): Promise<boolean> =>
        (await one.run("nft", "list", "tables")).stdout.includes("uplink_proxy");
      await until("the redirection is there", isRedirected);
    }
    const agent = await bed.agent([], [`--proxy-server=${SERVER4}:${PORT}`, QUICK], { netns: one.bed.nodeName, env });
    const isOpen = async (): Promise<boolean> => {
      const socket = await bed.dial(server.udsPath);
      const answer = await connectThrough(socket, `127.0.0.1:${agent.healthPort}`);
      socket.destroy();
      return answer.startsWith("HTTP/1.1 200");
    };
    const viaOf = (): readonly string[] =>
      one.log.flatMap((line) => (line.includes(`:${PORT}`) ? (/ via (eth\d)/.exec(line)?.[1] ?? []) : []));
    const seen = (): string => agent.running.said() + one.log.join("\n");
    await until("the tunnel is open", isOpen, { seen });
    assert.deepEqual(viaOf(), ["eth0"], seen());
    if (!FULL) return;
    one.bed.wan0.break("silent");
    await until("the tunnel is over the other uplink", () => viaOf().at(-1) === "eth1", { deadlineMs: 40_000, seen });
    await until("it is open again", isOpen, { seen });
  });
}
