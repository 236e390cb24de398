/**
 * A lab on a cluster of somebody else with all that it can have there, by a user with the rights of deploy/lab/rbac.yaml alone: on the embedded
 * API server and on Kubernetes' own control plane (from ISTHMUS_PEERS).
 */
// in turn: a drain under load fails if proxies get no processor for seconds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { embeddedCluster, grantRights, realCluster, snapshotOf } from "#test/foreign-cluster";
import {
  argsOf,
  assertAsItWas,
  assertReport,
  followPage,
  openGuestBed,
  PAGE_COMMANDS,
  prefixOf,
} from "#test/guest-bed";
import { isthmus, nameOfGuest } from "#test/lab";
import { peersMissing } from "#test/real-api-server";

for (const { on, openCluster, skip } of [
  { on: "embedded", openCluster: () => embeddedCluster(), skip: false as const },
  {
    on: "Kubernetes",
    openCluster: realCluster,
    skip: peersMissing("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
  },
]) {
  test(`lab on ${on}: each right that is missing is named before anything is made; with those of deploy/lab/rbac.yaml the tunnel, Services and a drain under load work, and the cluster is as it was`, {
    skip,
    timeout: 300_000,
  }, async () => {
    await using bed = await openGuestBed(openCluster, nameOfGuest(`ct-guest-s${on === "embedded" ? "e" : "k"}`));
    const { cluster, lab } = bed;
    // Later flags win.
    const asGuest = `--kubeconfig=${cluster.guestKubeconfig}`;
    const refused = await isthmus(argsOf(bed, asGuest), { timeoutMs: 150_000 });
    assert.deepEqual([refused.code, refused.stdout], [1, ""], refused.stderr);
    assert.match(
      refused.stderr,
      /its user may not get, list, watch, create, patch, delete nodes; .*deploy\/lab\/rbac\.yaml/,
    );
    assert.doesNotMatch(refused.stderr, /this is a bug/);
    await assertAsItWas(bed);
    await grantRights(cluster);
    bed.asItWas = await snapshotOf(cluster, prefixOf(lab));
    const [, withServices] = PAGE_COMMANDS;
    const stdout = await followPage(bed, withServices, { more: ["--tunnel"], kubeconfig: cluster.guestKubeconfig });
    const { services, tunnel } = assertReport(stdout);
    assert.ok(services !== undefined && services.tries.length > 0);
    assert.deepEqual(services.drain.failed, []);
    assert.ok(tunnel !== undefined);
    await assertAsItWas(bed);
  });
}
