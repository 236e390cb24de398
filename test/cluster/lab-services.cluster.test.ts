// in turn: it runs two labs at a time, and a drain under load fails if proxies get no processor for seconds.
import assert from "node:assert/strict";
import { suite, test } from "node:test";
import type { LabReport } from "#lab/scenario";
import { isthmus, leftOf, removeLab } from "#test/lab";

const ARGS = ["lab", "--services", "--json", "--pods=4"];
const TIMEOUT = { timeout: 240_000 };

// Drains and rolling updates wait more than they compute: two labs fit on two cores.
suite("lab --services", { concurrency: 2 }, () => {
  for (const families of ["dual", "ipv4", "ipv6"] as const) {
    test(
      `lab --services, ${families}: every try goes right; a drain and two rolling updates under load cost no connection`,
      TIMEOUT,
      async (t) => {
        const name = `ct-services-${families}`;
        t.after(() => removeLab(name));
        const nodes = families === "dual" ? 3 : 2;
        const args = [...ARGS, `--name=${name}`, `--families=${families}`, `--nodes=${nodes}`];
        const { code, stdout, stderr } = await isthmus(args, { timeoutMs: 220_000 });
        assert.equal(code, 0, `isthmus lab ended with ${code}: ${stderr}${stdout}`);
        const { services } = JSON.parse(stdout) as LabReport;
        assert.ok(services !== undefined);
        // Per node and family: nine tries and one for stickiness in all; a node without edge pods is silent on its port.
        const perFamily = nodes * 8 + 1;
        assert.equal(services.tries.length, perFamily * (families === "dual" ? 2 : 1), JSON.stringify(services.tries));
        assert.equal(
          services.tries.some(({ wanted }) => wanted === "silent"),
          nodes > 2,
        );
        const { drain, rollouts } = services;
        assert.deepEqual(drain.failed, []);
        assert.ok(drain.underWay > 0 && drain.long > 0 && drain.connections > 300, JSON.stringify(drain));
        assert.ok(drain.outSeconds !== null && drain.outSeconds < 5, "two probes, every 250 ms, on a busy machine");
        assert.deepEqual(
          rollouts.map(({ deployment, externalTrafficPolicy, pods, failed }) => [
            deployment,
            externalTrafficPolicy,
            pods,
            failed,
          ]),
          [
            ["web", "Cluster", nodes + 1, []],
            ["edge", "Local", 2, []],
          ],
        );
        assert.deepEqual(leftOf(name), []);
      },
    );
  }
});

test("lab --services: with one node it is refused before anything is built", async () => {
  const { code, stderr } = await isthmus([...ARGS, "--name=ct-services", "--nodes=1"], { timeoutMs: 20_000 });
  assert.equal(code, 2);
  assert.match(stderr, /--services: the scenario drains one node, so --nodes must be 2 or more/);
});
