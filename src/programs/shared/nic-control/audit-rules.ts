import { orphansOf, ownPorts } from "#features/nic-controller";
import type { NicAuditRules } from "#features/nic-report";
import type { Namespace } from "#kube/client";
import { namespaceView } from "./cluster.ts";
import { nicRules } from "./rules.ts";

/** The rules of webhooks and controller for an audit. Pure. */
export function nicAuditRules(namespaces: ReadonlyMap<string, Namespace>): NicAuditRules {
  return {
    wishOf: ({ metadata, spec }) => {
      const namespace = namespaces.get(metadata.namespace ?? "");
      const { hostNetwork } = spec ?? {};
      return nicRules.wishOf(
        { metadata, spec: { hostNetwork }, status: {} },
        namespace === undefined ? undefined : namespaceView(namespace),
      );
    },
    shownDifferences: ({ metadata, status }, claim) => {
      const conditions = (status?.conditions ?? []) as NonNullable<
        Parameters<typeof nicRules.surface>[0]["status"]["conditions"]
      >;
      const { annotations = {}, condition } = nicRules.surface(
        { metadata, spec: {}, status: { conditions } },
        claim,
        0,
      );
      return [
        ...Object.keys(annotations).map((key) => `annotation ${key}`),
        ...(condition === undefined ? [] : [`condition ${condition.type}`]),
      ];
    },
    ownPorts,
    orphansOf,
  };
}
