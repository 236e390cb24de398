import * as v from "valibot";
import { NicReportError } from "../errors.ts";
import type { NicNode } from "./state.ts";

const text = v.string();
const texts = v.array(text);
const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const ids = v.record(text, text);

const nic = v.object({
  name: text,
  portId: text,
  kind: text,
  isConfigured: v.boolean(),
  isPending: v.optional(v.boolean()),
  mac: v.optional(text),
  mtu: v.optional(count),
  addresses: texts,
  devices: v.array(v.object({ name: text, master: v.optional(text) })),
  port: v.optional(v.object({ ovsdb: text, bridge: text, device: text, externalIds: ids })),
  differences: texts,
  link: v.optional(
    v.object({
      isUp: v.boolean(),
      mac: v.optional(text),
      mtu: count,
      addresses: texts,
      routes: texts,
      rules: texts,
    }),
  ),
});
const nodeState = v.object({
  node: text,
  claims: texts,
  sandboxes: v.array(
    v.object({ containerId: text, podUid: text, netns: text, isThere: v.boolean(), nics: v.array(nic) }),
  ),
  devices: v.array(
    v.object({ name: text, isUp: v.boolean(), master: v.optional(text), portId: text, containerId: text }),
  ),
  switches: v.array(
    v.object({
      ovsdb: text,
      fault: v.optional(text),
      bridges: texts,
      ports: v.array(
        v.object({ bridge: text, device: text, externalIds: ids, ofport: v.optional(count), error: text }),
      ),
    }),
  ),
});

/** Pure: reads the state of a node, of parsed JSON; `JSON.stringify` of a {@link NicNode} is its reverse. Throws {@link NicReportError}. */
export function decodeNicNode(json: unknown): NicNode {
  const { success, output, issues } = v.safeParse(nodeState, json);
  if (success) return output;
  const [first] = issues;
  throw new NicReportError(
    "bad-answer",
    `the state of a node's NICs is malformed: ${v.getDotPath(first) ?? "it"}: ${first.message}`,
  );
}
