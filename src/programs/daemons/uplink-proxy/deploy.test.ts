import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { parseFlags } from "#base/config";
import { nullLogger } from "#base/log";
import { SettingsFile } from "#features/uplink-config";
import { uplinkFlags } from "./flags.ts";

const folder = join(import.meta.dirname, "../../../../deploy/uplink");
const read = (name: string): string => readFileSync(join(folder, name), "utf8");

test("deploy/uplink: the example settings are right, word for word, and say what the guide says of them", () => {
  const { settings, ready, error } = new SettingsFile(
    { clock: systemClock, log: nullLogger },
    { path: join(folder, "uplinks.example.json") },
  ).current;
  assert.deepEqual([ready, error], [true, undefined]);
  assert.deepEqual(
    settings.uplinks.map(({ name, cost, mode }) => [name, cost, mode]),
    [
      ["lan0", 0, "static"],
      ["lte", 10, "observe"],
    ],
  );
  // Else the second uplink would never be used.
  assert.ok(settings.maxCost >= 10);
  // What costs money is not probed.
  assert.equal(settings.probe.maxCost, 0);
});

test("deploy/uplink: the unit gives flags that the program has, no capability but one, and leaves the watchdog alive", () => {
  const unit = read("uplink-proxy.service");
  const value = (key: string): string | undefined => new RegExp(`^${key}=(.*)$`, "m").exec(unit)?.[1];
  const [path, program, ...args] = value("ExecStart")?.split(/\s+/) ?? [];
  assert.deepEqual([path, program], ["/usr/local/bin/isthmus", "uplink-proxy"]);
  const { values, words } = parseFlags(uplinkFlags, args);
  assert.deepEqual([values.config, words], ["/etc/isthmus/uplinks.json", []]);
  for (const key of ["CapabilityBoundingSet", "AmbientCapabilities"]) assert.equal(value(key), "CAP_NET_ADMIN");
  assert.equal(value("KillMode"), "process");
  // Under a file system that is read-only, each default path of the program that it writes to is one of its own.
  assert.equal(value("ProtectSystem"), "strict");
  const own = (value("RuntimeDirectory")?.split(" ") ?? []).map((name) => `/run/${name}/`);
  assert.ok(own.some((prefix) => values.controlSocket.startsWith(prefix)));
  assert.ok(own.includes(`${values.runDir}/mgmtproxy/`));
  assert.equal(values.secretsDir, `/var/lib/${value("StateDirectory")?.split(" ")[0]}`);
});

test("deploy/uplink-proxy.yaml: the folders of the off-switch and of the runtime's record are mounted from the host at their own places", () => {
  const manifest = readFileSync(join(folder, "../uplink-proxy.yaml"), "utf8");
  const args = [...manifest.matchAll(/^ +- (--\S+)$/gm)].map(([, flag = ""]) => flag);
  const { values } = parseFlags(uplinkFlags, args);
  const mounts = new Map(
    [...manifest.matchAll(/name: (\S+), mountPath: ([^,} ]+)/g)].map(([, name, path]) => [path, name]),
  );
  const places = new Map(
    [...manifest.matchAll(/- name: (\S+)\n +hostPath: \{ path: ([^,} ]+)/g)].map(([, name, path]) => [name, path]),
  );
  for (const file of [values.offSwitch, values.sentinel]) {
    const mounted = dirname(file);
    assert.equal(places.get(mounts.get(mounted) ?? ""), mounted, file);
  }
});
