import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { Service } from "#kube/client";
import { sourceRangesOf } from "../track/index.ts";

interface WarningOptions {
  /** Gate `AllowServiceExternalIPs`. */
  readonly allowExternalIPs: boolean;
  /** True if the Service needs a health check port and has none. */
  readonly lacksHealthPort: (service: Service) => boolean;
}

/** A fault of a Service that its owner should know of. */
interface ServiceWarning {
  readonly level: "warn" | "error";
  readonly applies: (service: Service, options: WarningOptions) => boolean;
  readonly message: string;
  readonly fix: string;
  /** The Event that is written besides, if its owner finds the fault nowhere else. */
  readonly event?: { readonly reason: SourceRangesReason; readonly note: (service: Service) => string };
}

/** Reasons of Events about `spec.loadBalancerSourceRanges`. */
export type SourceRangesReason = "UnreadableSourceRange" | "SourceRangesOfOneFamily";

/** Takes Events about Services. */
export type ServiceEventSink = (event: {
  readonly about: { readonly namespace: string; readonly name: string };
  readonly type: "Warning";
  readonly reason: SourceRangesReason;
  readonly note: string;
}) => void;

const WARNINGS: readonly ServiceWarning[] = [
  {
    // docs/spec/service-proxy.md#1.5.
    level: "error",
    applies: (service, { lacksHealthPort }) => lacksHealthPort(service),
    message: "a Service needs a health check port and has none: its load balancer sends no connections to this node",
    fix: "set spec.healthCheckNodePort, or update the Service, so that the API server allocates one",
  },
  {
    // docs/spec/service-proxy.md#2.1.
    level: "warn",
    applies: ({ spec }, { allowExternalIPs }) => allowExternalIPs && (spec?.externalIPs ?? []).length > 0,
    message:
      "a Service has spec.externalIPs, which Kubernetes deprecates: any user who may write Services can take addresses with it",
    fix: "use type LoadBalancer; --feature-gates=AllowServiceExternalIPs=false disables spec.externalIPs",
  },
  {
    // docs/spec/service-proxy.md#2.4.
    level: "error",
    applies: ({ spec }) => spec !== undefined && sourceRangesOf(spec).unreadable.length > 0,
    message: "spec.loadBalancerSourceRanges of a Service has an entry that cannot be read: it allows nobody",
    fix: "write each entry as a prefix, such as 10.0.0.0/8 or 2001:db8::/32",
    event: {
      reason: "UnreadableSourceRange",
      note: ({ spec = {} }) => {
        const [first = "", ...more] = sourceRangesOf(spec).unreadable;
        const others = more.length === 0 ? "" : ` and ${more.length} more`;
        return `spec.loadBalancerSourceRanges: ${JSON.stringify(first.slice(0, 64))}${others} cannot be read and allows nobody; write prefixes such as 10.0.0.0/8`;
      },
    },
  },
  {
    level: "warn",
    applies: (service) => openFamily(service) !== undefined,
    message:
      "spec.loadBalancerSourceRanges of a Service has ranges of one family alone: in the other one everybody is allowed, as with kube-proxy",
    fix: "add a range of the other family, or set spec.ipFamilies",
    event: {
      reason: "SourceRangesOfOneFamily",
      note: (service) =>
        `spec.loadBalancerSourceRanges has no range of IPv${openFamily(service)}: every source of that family may use the load balancer's addresses; add a range`,
    },
  },
];

/** The family in which a Service has a load balancer's addresses for everybody, while its list of sources has ranges of the other one. Pure. */
function openFamily({ spec }: Pick<Service, "spec">): IpFamily | undefined {
  if (spec === undefined) return undefined;
  const { ranges, unreadable } = sourceRangesOf(spec);
  if (ranges.length === 0 || unreadable.length > 0) return undefined;
  return ([4, 6] as const).find(
    (family) => spec.ipFamilies?.includes(`IPv${family}`) === true && !ranges.some((range) => range.family === family),
  );
}

/** Finds what the lists of sources of a Service do that their owner may not expect, as its Events say it; `isOpen` if they let in more than they name. Pure. */
export function sourceRangeFaults(service: Service): readonly { readonly note: string; readonly isOpen: boolean }[] {
  return WARNINGS.flatMap(({ applies, event }) =>
    event !== undefined && applies(service, { allowExternalIPs: false, lacksHealthPort: () => false })
      ? [{ note: event.note(service), isOpen: event.reason === "SourceRangesOfOneFamily" }]
      : [],
  );
}

/** Logs each warning once for each Service, and writes its Event; again if the warning ends and then applies again. */
export function serviceWarnings(
  { log, onEvent }: { readonly log: Logger; readonly onEvent: ServiceEventSink },
  options: WarningOptions,
): (name: string, service: Service | undefined) => void {
  // For each warning, the names of the Services that it was logged for. Deleted Services are removed.
  const reported = WARNINGS.map(() => new Set<string>());
  return (name, service) => {
    for (const [at, { level, applies, message, fix, event }] of WARNINGS.entries()) {
      const known = reported[at];
      if (service === undefined || !applies(service, options)) {
        known?.delete(name);
        continue;
      }
      if (known?.has(name) === true) continue;
      known?.add(name);
      log[level](message, { service: name, fix });
      if (event === undefined) continue;
      const { namespace = "", name: own } = service.metadata;
      onEvent({ about: { namespace, name: own }, type: "Warning", reason: event.reason, note: event.note(service) });
    }
  };
}
