/** The addresses that may read metrics of the shipped programs (docs/security.md). */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { EveryProgram, isOver, portsOf } from "#test/every-program";
import { start, until } from "#test/lab";

const [KNOWN, STRANGER, LOOPBACK] = ["198.51.100.7", "203.0.113.7", "127.0.0.1"];
const FLAG = "--metrics-from=198.51.100.0/24,2001:db8::/32";

/** Asks, in a program's network, one address after the other, and prints the status of each answer; 0: the connection ended without one. */
const ASK = `
const { connect } = require("node:net");
const ask = ([from, to, port, path]) => new Promise((resolve) => {
  const socket = connect({ localAddress: from, host: to, port });
  let text = "";
  socket.on("error", () => socket.destroy());
  socket.on("data", (data) => { text += data; });
  socket.once("close", () => resolve([Number(text.split(" ")[1] ?? 0), /isthmus_metrics_refused_total (\\d+)/.exec(text)?.[1]]));
  socket.write("GET " + path + " HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n");
});
(async () => {
  const answers = [];
  for (const one of JSON.parse(process.argv[1])) answers.push(await ask(one));
  console.log(JSON.stringify(answers));
})();
`;

type Question = readonly [from: string, to: string, port: number, path: string];

/** Starts a program in a network of its own, which has the addresses, and returns what asks it. */
async function serving(
  t: TestContext,
  name: string,
  { ports, flags = [] }: { ports: readonly number[]; flags?: readonly string[] },
) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-metrics-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const running = new EveryProgram(folder).launch(name, { flags: [FLAG, ...flags] });
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  const pid = running.child.pid ?? 0;
  const listens = (): boolean => ports.every((port) => portsOf(pid).includes(port));
  await until(`${name} serves`, () => isOver(running) || listens(), { seen: running.said });
  const inside = (...argv: readonly string[]) => start(["nsenter", `--net=/proc/${pid}/ns/net`, ...argv]).ended;
  await inside("sh", "-ec", `for one in ${KNOWN} ${STRANGER}; do ip address add $one/32 dev lo; done`);
  return async (...questions: readonly Question[]): Promise<readonly (readonly [number, string | null])[]> => {
    const { stdout, stderr } = await inside(process.execPath, "-e", ASK, JSON.stringify(questions));
    assert.equal(stderr, "", running.said());
    return JSON.parse(stdout);
  };
}

const statuses = (answers: readonly (readonly [number, unknown])[]): readonly number[] => answers.map(([one]) => one);

test("--metrics-from: where a port has metrics alone the connections of others end, each is counted, and the port of health stays open to all", async (t) => {
  const ask = await serving(t, "sni-router", { ports: [9398, 9399] });
  const answers = await ask(
    [KNOWN, LOOPBACK, 9398, "/metrics"],
    [STRANGER, LOOPBACK, 9398, "/metrics"],
    [STRANGER, LOOPBACK, 9398, "/healthz"],
    [STRANGER, LOOPBACK, 9399, "/healthz"],
    [LOOPBACK, LOOPBACK, 9398, "/metrics"],
    [STRANGER, STRANGER, 9398, "/metrics"],
  );
  assert.deepEqual(statuses(answers), [200, 0, 0, 200, 200, 200]);
  assert.deepEqual([answers[0]?.[1], answers[4]?.[1]], ["0", "2"]);
});

test("--metrics-from: where a port has health too others get 403 for all else, from Konnectivity's and kube-proxy's ports as well", async (t) => {
  const [agent, services] = await Promise.all([
    serving(t, "proxy-agent", { ports: [8093, 8094], flags: ["--enable-profiling"] }),
    serving(t, "service-proxy", { ports: [10_249], flags: ["--metrics-bind-address=0.0.0.0:10249", "--profiling"] }),
  ]);
  const ofAgent = await agent(
    [KNOWN, LOOPBACK, 8093, "/metrics"],
    [STRANGER, LOOPBACK, 8093, "/metrics"],
    [STRANGER, LOOPBACK, 8093, "/healthz"],
    [STRANGER, LOOPBACK, 8094, "/debug/pprof/"],
    [KNOWN, LOOPBACK, 8094, "/debug/pprof/"],
    [STRANGER, STRANGER, 8093, "/metrics"],
  );
  assert.deepEqual(statuses(ofAgent), [200, 403, 200, 0, 200, 200]);
  assert.equal(ofAgent.at(-1)?.[1], "2");
  const ofServices = await services(
    [KNOWN, LOOPBACK, 10_249, "/metrics"],
    [STRANGER, LOOPBACK, 10_249, "/metrics"],
    [STRANGER, LOOPBACK, 10_249, "/configz"],
    [STRANGER, LOOPBACK, 10_249, "/debug/pprof/"],
    [STRANGER, LOOPBACK, 10_249, "/healthz"],
    [STRANGER, STRANGER, 10_249, "/metrics"],
  );
  assert.deepEqual(statuses(ofServices), [200, 403, 403, 403, 200, 200]);
  assert.equal(ofServices.at(-1)?.[1], "3");
});
