// in turn: it needs the processor within seconds, when a router goes under load.
import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import type { LabReport } from "#lab/scenario";
import { isthmus, leftOf, removeLab } from "#test/lab";

const LAB = "ct-egress";
const ARGS = ["lab", "--egress", "--json", `--name=${LAB}`];
/** The longest time of a live change and of a failover, in seconds. */
const MOST_SECONDS = 1;

type Found = NonNullable<LabReport["egress"]>;

suite("lab --egress", { timeout: 150_000 }, () => {
  let report: LabReport;
  let egress: Found;
  before(async () => {
    const { code, stdout, stderr } = await isthmus([...ARGS, "--nodes=2", "--pods=2"], { timeoutMs: 140_000 });
    assert.equal(code, 0, `isthmus lab ended with ${code}: ${stderr}${stdout}`);
    report = JSON.parse(stdout) as LabReport;
    assert.ok(report.egress !== undefined);
    egress = report.egress;
  });
  after(() => removeLab(LAB));

  test("lab --egress: the outside sees each client as a router of the Egress that it names, and pods without an Egress not at all", () => {
    const { routers, tries } = egress;
    assert.ok(["fou", "vxlan"].includes(egress.driver), egress.driver);
    assert.equal(routers.length, 3);
    const of = (name: string): readonly string[] =>
      routers.filter((one) => one.name.startsWith(`${name}-`)).flatMap(({ addresses }) => addresses);
    assert.deepEqual([of("both").length, of("pair").length], [2, 4]);
    // Six pods, two sites, two families.
    assert.equal(tries.length, 24, JSON.stringify(tries));
    const seen = (from: string, site: string): readonly string[] =>
      tries.filter((one) => one.from === from && one.to.startsWith(`site ${site} `)).map(({ got }) => got);
    for (const client of ["client1", "client4"])
      assert.deepEqual(seen(client, "both").toSorted(), of("both").toSorted(), client);
    for (const client of ["client2", "client3", "client4"]) {
      const [first = "", second] = seen(client, "pair");
      assert.ok(of("pair").includes(first), `${client}: ${first}`);
      assert.equal(second, "no answer", "the Egress has destinations of one family");
    }
    for (const [from, site] of [
      ["client1", "pair"],
      ["client2", "both"],
      ["plain1", "both"],
      ["plain2", "pair"],
    ] as const)
      assert.deepEqual(seen(from, site), ["no answer", "no answer"], `${from} to ${site}`);
  });

  test("lab --egress: traffic in the cluster passes no router, and the audit finds nothing", () => {
    // Four clients, two pods without an Egress, two families.
    assert.equal(egress.inCluster.length, 16);
    for (const one of egress.inCluster) assert.equal(one.got, one.wanted, JSON.stringify(one));
    assert.deepEqual(report.audit.findings, []);
    assert.deepEqual(report.audit.egress, {
      // It looks after the Egress of two routers was scaled to one.
      ...{ egresses: 2, clients: 4, routers: 2 },
      ...{ clientsElsewhere: 0, routersElsewhere: 0 },
    });
    assert.equal(report.pings.answered, report.pings.sent);
  });

  test("lab --egress: a destination added to a live Egress works within a second, while a stream to another one runs on", () => {
    const { seconds, streamRanOn, destination } = egress.live;
    assert.equal(destination, "198.18.3.0/24");
    assert.ok(seconds !== null && seconds <= MOST_SECONDS, `${seconds} s`);
    assert.equal(streamRanOn, true);
  });

  test("lab --egress: of a router that loses its power only the own streams of 50 end, and of 200 connects a second those after a second work", () => {
    const { kill } = egress;
    assert.equal(kill.streams, 50);
    assert.ok(kill.own > 0 && kill.own < 50, `${kill.own} streams: without affinity both routers have some`);
    assert.deepEqual([kill.ownEnded, kill.othersEnded], [kill.own, 0]);
    assert.ok(kill.connects > 500, `${kill.connects} connects`);
    assert.ok(kill.failoverSeconds <= MOST_SECONDS, `${kill.failoverSeconds} s; ${kill.failed.join("; ")}`);
  });

  test("lab --egress: without affinity the connections of one pod go through both routers, by a driver that has a tunnel flow for each", () => {
    // With FoU and without fouSourcePortAuto all packets of a client are one flow.
    assert.equal(egress.kill.routersOfOne, egress.driver === "vxlan" ? 2 : 1);
  });

  test("lab --egress: a drained router costs no stream of 50 while it drains, and no connect of 200 a second, also when it is gone", () => {
    const { drain } = egress;
    assert.equal(drain.streams, 50);
    assert.ok(drain.own > 0, "the router had streams");
    assert.deepEqual([drain.ownEnded, drain.othersEnded, drain.failed], [0, 0, []]);
    assert.ok(drain.failedAtEnd <= 3, `${drain.failedAtEnd} connects failed when it ended`);
    assert.ok(drain.connects > 500, `${drain.connects} connects`);
    assert.ok(drain.seconds >= 4, `it drained for ${drain.seconds} s`);
  });

  test("lab --egress: scaled from one router to three and back, new connects use all, streams end with their router alone, and nothing of those that went is left", () => {
    const { scale } = egress;
    assert.ok(scale.own > 0 && scale.own < scale.streams, `${scale.own} of ${scale.streams} streams`);
    assert.deepEqual([scale.endedEarly, scale.othersEnded, scale.ownEnded], [0, 0, scale.own]);
    assert.equal(scale.routersOfNew, 3);
    assert.ok(scale.connects > 1000, `${scale.connects} connects`);
    assert.deepEqual([scale.failed, scale.left], [[], []]);
    assert.ok(scale.failedAtEnd <= 6, `${scale.failedAtEnd} connects failed when two routers ended`);
  });

  test("lab --egress: nothing of it stays", () => {
    assert.deepEqual(leftOf(LAB), []);
  });
});

test("lab --egress: with a firewall, uplinks, another plugin or another cluster it is refused before anything is built", async () => {
  for (const flag of ["--tunnel", "--uplinks", "--chained", "--kubeconfig=/nowhere"]) {
    const { code, stderr } = await isthmus([...ARGS, flag], { timeoutMs: 20_000 });
    assert.equal(code, 2, flag);
    assert.match(stderr, /this flag cannot be combined with/);
  }
});
