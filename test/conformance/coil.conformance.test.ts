/** Pools and blocks in the hands of an operator, with the kubectl of Debian's stable and of its unstable release. */
import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import { type AddressPoolSpec, COIL_FINALIZER, coilCrds, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { Cluster, SID_KUBECTL, whyNotRunnable } from "./cluster.ts";

for (const [release, kubectl] of [
  ["bookworm", undefined],
  ["sid", SID_KUBECTL],
] as const) {
  const skip = await whyNotRunnable(kubectl);
  const name = `pool-${release}-${process.pid}`;
  const spec: AddressPoolSpec = { blockSizeBits: 2, subnets: [{ ipv4: "10.1.0.0/24", ipv6: "fd01::/120" }] };
  const more = [...spec.subnets, { ipv4: "10.2.0.0/24", ipv6: "fd02::/120" }];
  const pool = (change: object, metadata: object = {}) => ({
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    metadata: { name, ...metadata },
    spec: { ...spec, ...change },
  });
  const block = {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressBlock",
    metadata: {
      name: `${name}-0`,
      labels: { [NODE_LABEL]: "node1", [POOL_LABEL]: name },
      finalizers: [COIL_FINALIZER],
    },
    index: 0,
    ipv4: "10.1.0.0/30",
    ipv6: "fd01::/126",
  };

  suite(`kubectl of ${release} and pools`, { skip, concurrency: false }, () => {
    let cluster: Cluster;

    before(async () => {
      cluster = await Cluster.open(`coil-${release}`, kubectl);
      for (const crd of coilCrds) await cluster.apply(crd);
      const crds = coilCrds.map(({ metadata }) => `crd/${metadata.name}`);
      await cluster.run(["wait", "--for=condition=established", ...crds, "--timeout=20s"]);
    });

    after(async () => {
      const left = [`addresspool/${name}`, `addressblock/${name}-0`];
      for (const one of left) {
        await cluster.try(["patch", one, "--type=merge", '-p={"metadata":{"finalizers":null}}']);
        await cluster.try(["delete", one, "--ignore-not-found"]);
      }
      await cluster[Symbol.asyncDispose]();
    });

    test("apply makes a pool, and again without a change; get prints the columns of Coil", async () => {
      assert.match(await cluster.apply(pool({})), new RegExp(`${name} created`));
      assert.match(await cluster.apply(pool({})), new RegExp(`${name} unchanged`));
      await cluster.apply(block);
      assert.match(
        await cluster.run(["get", "addresspools", name]),
        new RegExp(`^NAME\\s+BLOCKSIZE BITS\\n${name}\\s+2\\s*\\n$`),
      );
      assert.match(
        await cluster.run(["get", "addressblocks", `${name}-0`]),
        new RegExp(
          `^NAME\\s+NODE\\s+POOL\\s+IPV4\\s+IPV6\\n${name}-0\\s+node1\\s+${name}\\s+10\\.1\\.0\\.0/30\\s+fd01::/126\\s*\\n$`,
        ),
      );
    });

    test("a subnet can be appended; what would take addresses from pods is refused with the field and the reason", async () => {
      assert.match(await cluster.apply(pool({ subnets: more })), /configured/);
      for (const [change, reason] of [
        [{ subnets: more, blockSizeBits: 3 }, /spec\.blockSizeBits.*unchangeable/],
        [{ subnets: more.slice(1) }, /spec\.subnets.*unshrinkable/],
        [{ subnets: [...more, { ipv4: "nothing" }] }, /spec\.subnets\[2\]\.ipv4/],
      ] as const) {
        const { code, stderr } = await cluster.try(["apply", "-f", "-"], { stdin: JSON.stringify(pool(change)) });
        assert.notEqual(code, 0);
        assert.match(stderr.replaceAll("\n", " "), reason);
      }
    });

    test("server-side apply shares a pool between managers and names the one that a conflict is with", async () => {
      const mine = ["--server-side", "--field-manager=mine"];
      const labelled = pool({ subnets: more }, { labels: { owner: "mine" } });
      assert.match(await cluster.apply(labelled, ...mine), /serverside-applied/);
      const theirs = pool({ subnets: more }, { labels: { owner: "theirs" } });
      const args = ["apply", "-f", "-", "--server-side", "--field-manager=theirs"];
      const { code, stderr } = await cluster.try(args, { stdin: JSON.stringify(theirs) });
      assert.notEqual(code, 0);
      assert.match(stderr, /conflict with "mine"/);
      assert.match(
        await cluster.apply(theirs, "--server-side", "--field-manager=theirs", "--force-conflicts"),
        /serverside-applied/,
      );
      assert.equal(await cluster.value(["addresspool", name], "{.metadata.labels.owner}"), "theirs");
      assert.equal(await cluster.value(["addresspool", name], "{.spec.blockSizeBits}"), "2");
    });

    test("describe and explain tell what a pool and its fields are", async () => {
      const described = await cluster.run(["describe", "addresspool", name]);
      assert.match(described, /Block Size Bits:\s+2/);
      assert.match(described, /ipv4:\s+10\.1\.0\.0\/24/i);
      const explained = await cluster.run(["explain", "addresspool.spec.blockSizeBits"]);
      assert.match(explained, /blockSizeBits.*<integer>/s);
      assert.match(await cluster.run(["explain", "addressblocks"]), /KIND:\s+AddressBlock/);
      assert.match(await cluster.run(["explain", "addresspool.spec.subnets"]), /ipv4\s+<string>/);
    });

    test("delete waits for the finalizer of a block that is in use, and ends when it is given back", async () => {
      const deleting = cluster.run(["delete", "addressblock", `${name}-0`, "--timeout=20s"]);
      const marked = ["wait", `addressblock/${name}-0`, "--for=delete", "--timeout=1s"];
      assert.notEqual((await cluster.try(marked)).code, 0);
      assert.notEqual(await cluster.value(["addressblock", `${name}-0`], "{.metadata.deletionTimestamp}"), "");
      await cluster.run(["patch", "addressblock", `${name}-0`, "--type=merge", '-p={"metadata":{"finalizers":null}}']);
      assert.match(await deleting, /deleted/);
      await cluster.run(["delete", "addresspool", name]);
      assert.match((await cluster.try(["get", "addresspool", name])).stderr, /NotFound/);
    });
  });
}
