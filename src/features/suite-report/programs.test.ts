import assert from "node:assert/strict";
import { test } from "node:test";
import { endpointsOf, flagOf, suiteCommand, suiteCommands } from "./programs.ts";

test("suiteCommand: finds the program by its name, behind isthmus, and behind Node with the bundle", () => {
  for (const [words, program] of [
    ["coild --socket=/run/coild.sock", "coild"],
    ["/usr/local/coil/coil-router", "coil-router"],
    ["isthmus proxy-agent --x", "proxy-agent"],
    ["/opt/node --semi-space-growth-factor=1 /opt/dist/isthmus.mjs coild --x=1", "coild"],
    ["isthmus node coild -- service-proxy", "node"],
    ["/usr/bin/node /srv/app.mjs coild", undefined],
    ["node", undefined],
    ["bash -c coild", undefined],
    ["isthmus audit", undefined],
    ["", undefined],
  ] as const)
    assert.equal(suiteCommand(words.split(" "))?.program, program, words);
});

test("flagOf: the last value of a flag, in both forms", () => {
  const flags = ["-a", "1", "--a=2", "--b", "3", "x"];
  assert.deepEqual([flagOf(flags, "a"), flagOf(flags, "b"), flagOf(flags, "c")], ["2", "3", undefined]);
});

test("endpointsOf: defaults of each program, and what its flags say", () => {
  const of = (program: string, ...flags: readonly string[]) => endpointsOf({ program, flags });
  assert.deepEqual(of("coild"), { health: { host: "", port: 9385 }, metrics: { host: "", port: 9384 } });
  assert.deepEqual(of("coild", "--health-addr=127.0.0.1:1", "--metrics-addr=:0"), {
    health: { host: "127.0.0.1", port: 1 },
    metrics: undefined,
  });
  assert.deepEqual(of("service-proxy", "--healthz-bind-address=[::]:7").health, { host: "::", port: 7 });
  assert.deepEqual(of("service-proxy").metrics, { host: "127.0.0.1", port: 10_249 });
  assert.deepEqual(of("proxy-agent", "--health-server-host=127.0.0.1", "--health-server-port=9").metrics, {
    host: "127.0.0.1",
    port: 9,
  });
  assert.deepEqual(of("coild", "--health-addr="), { health: undefined, metrics: { host: "", port: 9384 } });
});

test("suiteCommands: a node process is itself and its parts, each with its flags", () => {
  const of = (text: string) =>
    suiteCommands(text.split(" ")).map(({ program, flags }) => `${program} ${flags.join(" ")}`.trim());
  assert.deepEqual(of("isthmus node --zap-log-level debug coild --socket=/s -- service-proxy --v 1"), [
    "node --zap-log-level debug",
    "coild --socket=/s",
    "service-proxy --v 1",
  ]);
  assert.deepEqual([of("isthmus node"), of("coild --x"), of("bash")], [["node"], ["coild --x"], []]);
});
