import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "#kube/client";
import type { NicStatus } from "#kube/nic";
import type { AuditedWish } from "../audit/rules.ts";
import { READY_NIC, testClaim, testPod, UID } from "../testing.ts";
import { nicRows, nicRowsText } from "./rows.ts";
import { type TraceStep, tracePod, traceText } from "./trace.ts";

const WISH: AuditedWish = { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0" }] };
const faulty: AuditedWish = { kind: "faulty", faults: [{ field: "nics[0].ip", message: "is none" }] };
const PLUGGED = {
  type: "Plugged",
  status: "True",
  message: "on node-1",
  lastTransitionTime: "2026-01-01T00:00:05Z",
} as const;

test("nicRows: a row for each NIC of a claim, and for each that a pod without one asks for", () => {
  const failed: NicStatus = { name: "eth1", state: "Failed", reason: "IpInUse", message: "10.0.0.9 is of port x" };
  const claim = testClaim([READY_NIC, failed], { phase: "Failed" });
  const rows = nicRows({ pods: [testPod()], claims: [claim], wishOf: () => WISH });
  assert.deepEqual(
    rows.map(({ namespace, pod, nic, state, phase, addresses, node, reason }) => [
      ...[namespace, pod, nic, state, phase, addresses.join(), node, reason],
    ]),
    [
      ["ns", "a", "eth0", "Ready", "Failed", "10.0.0.5/24", "node-1", ""],
      ["ns", "a", "eth1", "Failed", "Failed", "", "node-1", "IpInUse"],
    ],
  );
  assert.equal(
    nicRowsText(rows),
    [
      "NAMESPACE  POD  NIC   STATE   CLAIM   PORT                                  ADDRESSES    NODE    REASON",
      "ns         a    eth0  Ready   Failed  30b6911d-1111-4111-8111-000000000001  10.0.0.5/24  node-1  -",
      "ns         a    eth1  Failed  Failed  -                                     -            node-1  IpInUse: 10.0.0.9 is of port x",
      "",
    ].join("\n"),
  );
  const reasonsOf = (wish: AuditedWish, pods = [testPod()]) =>
    nicRows({ pods, claims: [], wishOf: () => wish }).map(({ nic, state, reason }) => [nic, state, reason]);
  assert.deepEqual(reasonsOf(WISH), [["eth0", "NoClaim", ""]]);
  assert.deepEqual(reasonsOf(faulty), [["", "NoClaim", "InvalidNics"]]);
  assert.deepEqual(reasonsOf({ kind: "host-network" }), [["", "NoClaim", "HostNetworkIgnored"]]);
  assert.deepEqual(reasonsOf({ kind: "none" }), []);
  assert.deepEqual(reasonsOf(WISH, [testPod({ status: { phase: "Succeeded" } })]), []);
  const gone = nicRows({ pods: [], claims: [testClaim([READY_NIC], { phase: "Releasing" })], wishOf: () => WISH });
  assert.deepEqual([gone[0]?.phase, gone[0]?.reason], ["Releasing", "PodGone"]);
  assert.equal(nicRowsText([]), "no pod has NICs of a VPC\n");
});

test("tracePod: each state of a pod stands at the first step that is not done, with the reason and what can be done", () => {
  const without = (...keys: readonly (keyof NicStatus)[]): NicStatus =>
    Object.fromEntries(
      Object.entries({ ...READY_NIC, state: "InProgress" }).filter(([key]) => !keys.includes(key as never)),
    ) as never;
  const shown = {
    conditions: [{ type: "isthmus.dev/NicsReady", status: "True", lastTransitionTime: "2026-01-01T00:00:07Z" }],
  };
  const rows: readonly (readonly [
    parts: {
      readonly wish?: AuditedWish;
      readonly pod?: object;
      readonly nic?: NicStatus | null;
      readonly conditions?: readonly object[];
    },
    step: TraceStep["step"] | undefined,
    state: TraceStep["state"] | undefined,
    why: RegExp,
    remedy?: RegExp,
  ])[] = [
    [{ wish: { kind: "none" }, nic: null }, "wish", "failed", /asks for no NICs/],
    [{ wish: faulty, nic: null }, "wish", "failed", /nics\[0\]\.ip: is none/],
    [{ wish: { kind: "host-network" }, nic: null }, "wish", "failed", /network of its node/],
    [{ nic: null }, "claim", "waiting", /has not made a NicClaim/],
    [{ nic: { name: "eth0", state: "Unknown" } }, "port", "waiting", /has not made the port yet/],
    [
      {
        nic: {
          name: "eth0",
          state: "Failed",
          reason: "SubnetFull",
          message: "no address left",
          attempts: 3,
          nextRetryAt: "2026-01-01T00:01:00Z",
        },
      },
      "port",
      "failed",
      /^SubnetFull: no address left; 3 attempts, the next at 2026-01-01T00:01:00Z$/,
      /nicctl gc/,
    ],
    [{ nic: without("host", "vifType", "activeAt"), pod: { spec: {} } }, "scheduled", "waiting", /no node yet/],
    [
      {
        nic: {
          ...without("activeAt"),
          vifType: "binding_failed",
          reason: "BindingFailed",
          message: "no agent on node-1",
        },
      },
      "bound",
      "waiting",
      /^BindingFailed: no agent on node-1$/,
      /provider-host/,
    ],
    [{ nic: without("activeAt") }, "plugged", "waiting", /node node-1 has not plugged it: does nic-agent run/],
    [{ nic: without("activeAt"), conditions: [PLUGGED] }, "active", "waiting", /agent on host node-1 has not told/],
    [{ nic: READY_NIC, conditions: [PLUGGED] }, "shown", "waiting", /NicsReady of the pod is not true yet/],
    [{ nic: READY_NIC, conditions: [PLUGGED], pod: { status: shown } }, undefined, undefined, /^$/],
  ];
  for (const [parts, step, state, why, remedy] of rows) {
    const { wish = WISH, pod = {}, nic = null, conditions = [] } = parts;
    const claim = nic === null ? undefined : testClaim([nic], { conditions: conditions as never });
    const story = tracePod({ pod: testPod(pod), claim, wish, events: [] });
    const one = story.nics[0];
    assert.deepEqual(
      [one?.stands?.step, one?.steps.find((each) => each.state !== "done")?.state],
      [step, state],
      String(why),
    );
    assert.match(one?.stands?.why ?? "", why);
    assert.match(one?.stands?.remedy ?? "", remedy ?? /^$/);
  }
});

test("tracePod: a NIC that was added to a running pod stands at plugged until its node names it", () => {
  const claim = testClaim([READY_NIC, { ...READY_NIC, name: "eth1", state: "InProgress" }], {
    conditions: [PLUGGED],
    plugged: { generation: 1, nics: [{ name: "eth0" }] },
  });
  const { nics } = tracePod({ pod: testPod(), claim, wish: WISH, events: [] });
  assert.deepEqual(
    nics.map(({ nic, stands }) => [nic, stands?.step]),
    [
      ["eth0", "shown"],
      ["eth1", "plugged"],
    ],
  );
});

test("traceText: steps with times since the pod was made, and events of the NIC programs in order", () => {
  const event = (reportingController: string, eventTime: string, reason: string, more: object = {}): Event =>
    ({ reportingController, eventTime, reason, note: "eth0", metadata: {}, ...more }) as unknown as Event;
  const story = tracePod({
    pod: testPod({
      annotations: { "isthmus.dev/nics": '[{"name":"eth0"}]' },
      status: { conditions: [{ type: "PodScheduled", status: "True", lastTransitionTime: "2026-01-01T00:00:03Z" }] },
    }),
    claim: testClaim([READY_NIC], { conditions: [PLUGGED] }),
    wish: WISH,
    events: [
      event("nic-agent", "2026-01-01T00:00:05.000000Z", "NicFailed", { series: { count: 3 } }),
      event("nic-controller", "2026-01-01T00:00:02.500000Z", "PortCreated"),
      event("kubelet", "2026-01-01T00:00:04.000000Z", "Pulled"),
    ],
  });
  assert.equal(
    traceText(story),
    `pod ns/a (${UID})

NIC eth0: stands at "shown"
  done     wish       2026-01-01T00:00:00Z         +0.0s  the pod asks for 1 NICs of VPC vpc-1
  done     admission  2026-01-01T00:00:00Z         +0.0s  the webhook has brought the NICs into normal form
  done     claim      2026-01-01T00:00:01Z         +1.0s  NicClaim ${UID} of provider neutron, phase Active
  done     port       2026-01-01T00:00:02Z         +2.0s  port ${READY_NIC.portID} was made, with 10.0.0.5/24
  done     scheduled  2026-01-01T00:00:03Z         +3.0s  on node node-1
  done     bound      -                                   to host node-1, as ovs
  done     plugged    2026-01-01T00:00:05Z         +5.0s  on node-1
  done     active     2026-01-01T00:00:06Z         +6.0s  the provider says that the port is active
  waiting  shown      -                                   condition isthmus.dev/NicsReady of the pod is not true yet

events:
  2026-01-01T00:00:02.500000Z     +2.5s  PortCreated: eth0
  2026-01-01T00:00:05.000000Z     +5.0s  NicFailed (3 times): eth0
`,
  );
});
