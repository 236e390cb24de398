/** The shipped router on a kernel that has FoU, its default driver. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fouDriver } from "#features/egress";
import { loadModules } from "#kernel/modules";
import { until } from "#test/lab";
import { isReady, makePod, openRouterBed, SERVED, waysBack } from "#test/router-bed";
import { AT } from "../../src/features/egress/testing/bed.ts";

const FAMILIES = [4, 6] as const;
/** The emulated processor takes 6 s to start node. */
const START = { deadlineMs: 300_000 };

// For the tunnels of the client.
await loadModules(["fou", "fou6"]);

for (const driver of ["fou", "auto"]) {
  test(`coil-egress --tunnel-driver=${driver}: a container that is killed starts again in its pod's namespace, and tunnels and ways stay`, async (t) => {
    const { bed, api, run } = await openRouterBed(t, fouDriver);
    await makePod(
      api,
      "client",
      FAMILIES.map((family) => String(AT.client[family])),
    );
    const flags = [`--tunnel-driver=${driver}`, "--backend=nftables", "--enable-sport-auto=true"];
    const links = (): string =>
      bed
        .stack("router")
        .links.list()
        .map(({ name, index }) => `${index} ${name}`)
        .join(", ");
    const first = run(...flags);
    await until("it is ready", () => isReady(bed), { ...START, seen: first.said });
    const made = links();
    assert.match(made, /coil_ipip4.*coil_ipip6|coil_ipip6.*coil_ipip4/);
    first.child.kill("SIGKILL");
    await first.ended;
    const second = run(...flags);
    await until("it is ready again", () => isReady(bed), { ...START, seen: second.said });
    assert.equal(links(), made);
    assert.deepEqual(
      waysBack(bed),
      FAMILIES.map((family) => String(AT.client[family])),
    );
    for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, SERVED), String(AT.router[family]));
  });
}
