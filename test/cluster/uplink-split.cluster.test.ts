import assert from "node:assert/strict";
import { chmodSync, mkdirSync } from "node:fs";
import { join, relative } from "node:path";
import { test } from "node:test";
import { ISTHMUS, start, until } from "#test/lab";
import { openUplinkBed, WEB4 } from "#test/uplink-bed";

const TIMEOUT = { timeout: 60_000 };
const ROOT = join(import.meta.dirname, "../..");
/** As nobody; the checkout may be in a folder of root's alone, so it is mounted where everybody may read. */
const asNobody = (checkout: string): [string, ...string[]] => [
  "unshare",
  ...["--mount", "--propagation=private"],
  ...["sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", ROOT, checkout],
  "setpriv",
  "--reuid=65534",
  "--regid=65534",
  "--clear-groups",
  "--inh-caps=-all",
  "--bounding-set=-all",
];

test(
  "uplink-proxy: in two processes, the proxy serves as `nobody` without capabilities, and knows the results of the other's probes",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, {}, { start: false });
    one.configure({
      probe: { targets: [{ type: "tcp", host: "203.0.113.80", port: 443 }], intervalMs: 1000, timeoutMs: 500 },
    });
    const runDir = join(one.dir, "run");
    mkdirSync(runDir);
    chmodSync(one.dir, 0o755);
    chmodSync(runDir, 0o777);
    const checkout = join(one.dir, "checkout");
    mkdirSync(checkout);
    const launch = (parts: "routing" | "proxy", [command, ...words]: readonly [string, ...string[]]) => {
      const flags = [`--parts=${parts}`, `--config=${one.settings}`, `--run-dir=${runDir}`];
      const more = [`--secrets-dir=${join(runDir, "secrets")}`, `--control-socket=${join(one.dir, "control.sock")}`];
      const [file, args] = one.bed.inside(command, ...words, "uplink-proxy", ...flags, ...more);
      const running = start([file, ...args], { timeoutMs: 60_000 });
      t.after(async () => {
        running.child.kill();
        await running.ended;
      });
      return running;
    };
    launch("routing", [ISTHMUS]);
    const proxy = launch("proxy", [...asNobody(checkout), join(checkout, relative(ROOT, ISTHMUS))]);
    await until("the proxy serves", async () => (await one.tryHealth())?.ready, { seen: () => proxy.said() });
    assert.match((await one.fetch(WEB4))[0], /^wan0 /);
    one.bed.wan0.break("drop-syn");
    const hasError = async (uplink: string): Promise<boolean | undefined> =>
      (await one.health()).ports.find(({ ifname }) => ifname === uplink)?.hasError === true;
    // On a busy machine a probe of the other one may be late too.
    const isKnown = async (): Promise<boolean> => (await hasError("eth0")) === true && !(await hasError("eth1"));
    await until("the proxy knows of the dead uplink, though nobody used it", isKnown, { seen: () => proxy.said() });
    const [answer, ms] = await one.fetch(WEB4);
    assert.match(answer, /^wan1 /);
    assert.ok(ms < 1500, `${ms}`);
    one.bed.wan0.heal();
    await until("and that it works again", async () => !(await hasError("eth0")), { seen: () => proxy.said() });
    assert.match((await one.fetch(WEB4))[0], /^wan0 /);
  },
);
