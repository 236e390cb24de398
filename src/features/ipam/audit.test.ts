import assert from "node:assert/strict";
import { test } from "node:test";
import { type AuditedBlock, type AuditedNode, type AuditedPod, type AuditInput, audit, type Finding } from "./index.ts";

/** One node with one block, one pod and its link; all agree. */
interface World {
  readonly blocks: AuditedBlock[];
  readonly pods: AuditedPod[];
  readonly nodeNames: string[];
  readonly nodes: AuditedNode[];
}

const block = (more: Partial<AuditedBlock> = {}): AuditedBlock => ({
  name: "default-0",
  uid: "u0",
  pool: "default",
  node: "node1",
  ipv4: "10.0.0.0/31",
  ipv6: "fd00::/127",
  deleting: false,
  ...more,
});

const pod = (more: Partial<AuditedPod> = {}): AuditedPod => ({
  namespace: "ns",
  name: "p",
  node: "node1",
  ips: ["10.0.0.0", "fd00::"],
  ...more,
});

const memoryBlock = { name: "default-0", uid: "u0", missing: false };
const attachment = { containerId: "c0", ifname: "eth0", ipv4: "10.0.0.0", ipv6: "fd00::" };
const link = { containerId: "c0", ifname: "eth0", addresses: ["fd00::", "10.0.0.0"] };

const node = (more: Partial<AuditedNode> = {}): AuditedNode => ({
  node: "node1",
  memory: { blocks: [memoryBlock], attachments: [attachment], unknown: [] },
  kernel: [link],
  halfMade: [],
  exported: ["10.0.0.0/31", "fd00::/127"],
  ...more,
});

const world = (more: Partial<World> = {}): AuditInput => ({
  blocks: [block()],
  pods: [pod()],
  nodeNames: ["node1"],
  nodes: [node()],
  ...more,
});

/** A node without anything. */
const idle = { memory: { blocks: [], attachments: [], unknown: [] }, kernel: [], exported: [] };

test("audit: nothing is found where API, memory and kernel agree, nor where there is nothing", () => {
  assert.deepEqual(audit(world()), []);
  assert.deepEqual(audit({ blocks: [], pods: [], nodeNames: [], nodes: [] }), []);
});

test("audit: a node that was not inspected is compared with the API alone", () => {
  const elsewhere = {
    blocks: [block(), block({ name: "default-1", uid: "u1", node: "node2", ipv4: "10.0.0.2/31", ipv6: undefined })],
    pods: [pod(), pod({ name: "q", node: "node2", ips: ["10.0.0.2"] })],
    nodeNames: ["node1", "node2"],
  };
  assert.deepEqual(audit(world(elsewhere)), []);
});

/** A disagreement, and all that must be said of it. */
interface Case {
  readonly when: string;
  readonly input: AuditInput;
  readonly found: readonly Finding[];
}

const memory = (more: Partial<AuditedNode["memory"]>): AuditedNode =>
  node({ memory: { blocks: [memoryBlock], attachments: [attachment], unknown: [], ...more } });

const CASES: readonly Case[] = [
  {
    when: "two pods have one address",
    input: world({ pods: [pod(), pod({ name: "q", ips: ["10.0.0.0"] })] }),
    found: [{ kind: "duplicate-address", node: undefined, text: "10.0.0.0 is held by pod ns/p and pod ns/q" }],
  },
  {
    when: "links of two nodes have one address",
    input: world({
      blocks: [block(), block({ name: "default-1", uid: "u1", node: "node2", ipv4: "10.0.0.2/31", ipv6: undefined })],
      pods: [pod(), pod({ name: "q", node: "node2", ips: ["10.0.0.2"] })],
      nodeNames: ["node1", "node2"],
      nodes: [
        node(),
        node({
          node: "node2",
          memory: {
            blocks: [{ name: "default-1", uid: "u1", missing: false }],
            attachments: [{ containerId: "c1", ifname: "eth0", ipv4: "10.0.0.2", ipv6: "fd00::" }],
            unknown: [],
          },
          kernel: [{ containerId: "c1", ifname: "eth0", addresses: ["10.0.0.2", "fd00::"] }],
          exported: ["10.0.0.2/31"],
        }),
      ],
    }),
    found: [
      {
        kind: "duplicate-address",
        node: undefined,
        text: "fd00:: is held by container c0 on node node1 and container c1 on node node2",
      },
    ],
  },
  {
    when: "a pod's address is in no block of its node",
    input: world({
      blocks: [block({ node: "node2" })],
      nodeNames: ["node1", "node2"],
      nodes: [],
    }),
    found: [
      { kind: "address-outside-block", node: "node1", text: "10.0.0.0 of pod ns/p is in no block of node node1" },
      { kind: "address-outside-block", node: "node1", text: "fd00:: of pod ns/p is in no block of node node1" },
    ],
  },
  {
    when: "a block is of a node that is gone",
    input: world({ pods: [], nodes: [], nodeNames: [] }),
    found: [
      { kind: "orphan-block", node: "node1", text: "block default-0 belongs to node node1, which does not exist" },
    ],
  },
  {
    when: "a wide block covers two others",
    input: world({
      blocks: [
        block({ name: "wide-0", ipv4: "10.0.0.0/24", ipv6: undefined }),
        block({ name: "narrow-0", ipv4: "10.0.0.2/31", ipv6: undefined }),
        block({ name: "narrow-1", ipv4: "10.0.0.8/31", ipv6: undefined }),
        block({ name: "beside-0", ipv4: "10.0.1.0/31", ipv6: undefined }),
      ],
      pods: [],
      nodes: [],
    }),
    found: [
      {
        kind: "overlapping-blocks",
        node: undefined,
        text: "blocks wide-0 (10.0.0.0/24) and narrow-0 (10.0.0.2/31) overlap",
      },
      {
        kind: "overlapping-blocks",
        node: undefined,
        text: "blocks wide-0 (10.0.0.0/24) and narrow-1 (10.0.0.8/31) overlap",
      },
    ],
  },
  {
    when: "coild does not know a block of its node",
    input: world({ nodes: [memory({ blocks: [] })] }),
    found: [
      { kind: "block-memory", node: "node1", text: "block default-0 belongs to this node, but coild does not know it" },
    ],
  },
  {
    when: "coild counts on a block that was made anew",
    input: world({ nodes: [memory({ blocks: [{ ...memoryBlock, uid: "old" }] })] }),
    found: [
      { kind: "block-memory", node: "node1", text: "block default-0 belongs to this node, but coild does not know it" },
      { kind: "block-memory", node: "node1", text: "coild uses block default-0, which does not belong to this node" },
    ],
  },
  {
    when: "a block in use vanished and came back",
    input: world({ nodes: [memory({ blocks: [{ ...memoryBlock, missing: true }] })] }),
    found: [{ kind: "block-memory", node: "node1", text: "block default-0 was deleted while it was in use" }],
  },
  {
    when: "coild has an attachment without a link",
    input: world({ pods: [], nodes: [node({ kernel: [] })] }),
    found: [
      {
        kind: "attachment-memory",
        node: "node1",
        text: "c0/eth0: coild's memory has 10.0.0.0,fd00::, the kernel has nothing",
      },
    ],
  },
  {
    when: "a link has another address than coild gave it",
    input: world({ nodes: [memory({ attachments: [{ ...attachment, ipv6: undefined }] })] }),
    found: [
      {
        kind: "attachment-memory",
        node: "node1",
        text: "c0/eth0: coild's memory has 10.0.0.0, the kernel has 10.0.0.0,fd00::",
      },
    ],
  },
  {
    when: "a link belongs to no pod",
    input: world({ pods: [] }),
    found: [{ kind: "leaked-attachment", node: "node1", text: "link of c0 with fd00::, 10.0.0.0 belongs to no pod" }],
  },
  {
    when: "a link has no address",
    input: world({
      pods: [],
      nodes: [
        node({
          memory: {
            blocks: [memoryBlock],
            attachments: [{ ...attachment, ipv4: undefined, ipv6: undefined }],
            unknown: [],
          },
          kernel: [{ ...link, addresses: [] }],
        }),
      ],
    }),
    found: [{ kind: "leaked-attachment", node: "node1", text: "link of c0 with no address belongs to no pod" }],
  },
  {
    when: "no link leads to a pod",
    input: world({ nodes: [node({ memory: { blocks: [memoryBlock], attachments: [], unknown: [] }, kernel: [] })] }),
    found: [
      { kind: "missing-attachment", node: "node1", text: "no link leads to 10.0.0.0 of pod ns/p" },
      { kind: "missing-attachment", node: "node1", text: "no link leads to fd00:: of pod ns/p" },
    ],
  },
  {
    when: "an ADD never ended",
    input: world({ nodes: [node({ halfMade: ["veth0123"] })] }),
    found: [{ kind: "half-made-link", node: "node1", text: "link veth0123 was made by an ADD that did not end" }],
  },
  {
    when: "the source guard lacks a link",
    input: world({ nodes: [node({ unguarded: ["veth0123"] })] }),
    found: [
      {
        kind: "unguarded-link",
        node: "node1",
        text: "the source guard has other addresses for link veth0123 than the kernel's routes",
      },
    ],
  },
  {
    when: "an attachment's address is in no block",
    input: world({ nodes: [memory({ unknown: [{ containerId: "c9", addresses: ["10.9.0.1", "fd09::1"] }] })] }),
    found: [{ kind: "unknown-address", node: "node1", text: "10.9.0.1, fd09::1 of c9 is in no block" }],
  },
  {
    when: "the export table is not the node's blocks",
    input: world({ nodes: [node({ exported: ["10.0.0.0/31", "10.0.0.4/31"] })] }),
    found: [
      { kind: "route-export", node: "node1", text: "the route to block fd00::/127 is not exported" },
      {
        kind: "route-export",
        node: "node1",
        text: "a route to 10.0.0.4/31 is exported, but that is not a block of this node",
      },
    ],
  },
];

for (const { when, input, found } of CASES) {
  test(`audit: when ${when} it says so and nothing else`, () => assert.deepEqual(audit(input), found));
}

test("audit: a prefix that is none, written by hand, is not taken for a block", () => {
  const crooked = world({ blocks: [block({ ipv4: "10.0.0.0/99", ipv6: undefined })], pods: [], nodes: [node(idle)] });
  assert.deepEqual(
    audit(crooked).map(({ kind, text }) => `${kind} ${text}`),
    ["block-memory block default-0 belongs to this node, but coild does not know it"],
  );
});

test("audit: every kind of finding has a case", () => {
  const kinds: Readonly<Record<Exclude<Finding["kind"], "unmarked-pod" | "stray-mark">, true>> = {
    "duplicate-address": true,
    "address-outside-block": true,
    "orphan-block": true,
    "overlapping-blocks": true,
    "block-memory": true,
    "attachment-memory": true,
    "leaked-attachment": true,
    "missing-attachment": true,
    "half-made-link": true,
    "unguarded-link": true,
    "unknown-address": true,
    "route-export": true,
  };
  const covered = new Set(CASES.flatMap(({ found }) => found.map(({ kind }) => kind)));
  assert.deepEqual([...covered].sort(), Object.keys(kinds).sort());
});
