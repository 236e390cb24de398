import type { Cidr } from "#base/ip";

/** The listener for pods, at the anchor address of the pod bridge (docs/spec/uplink-proxy.md#4). */
export const POD_PROXY_URL = "http://169.254.100.1:5443";
/** The ConfigMap with the certificate of the listener, for importer pods. */
export const CA_CONFIG_MAP = { namespace: "cdi", name: "mgmtproxy-ca", key: "ca.pem" } as const;

/** The wanted `spec.config.importProxy` of the CDI object; keys as CDI spells them. */
export interface ImportProxy {
  readonly HTTPSProxy: string;
  readonly noProxy: string;
  /** Name of the ConfigMap with our certificate; absent without TLS. */
  readonly trustedCAProxy?: string;
}

/** The wanted `importProxy`. Existing users compare its list as text, so the order of the list must not change. */
export function importProxy(
  url: string,
  options: {
    readonly podCIDRs?: readonly Cidr[];
    readonly serviceCIDRs?: readonly Cidr[];
    readonly trustedCAProxy?: string;
  } = {},
): ImportProxy {
  const pods = options.podCIDRs?.map(String) ?? ["10.42.0.0/16"];
  const services = options.serviceCIDRs?.map(String) ?? ["10.43.0.0/16"];
  const noProxy = [...pods, ...services, "127.0.0.0/8", "localhost", ".svc", ".cluster.local", "169.254.0.0/16"];
  return {
    HTTPSProxy: url,
    noProxy: noProxy.join(","),
    ...(options.trustedCAProxy === undefined ? {} : { trustedCAProxy: options.trustedCAProxy }),
  };
}

/**
 * `scheme://host:port` with the token as password. Must never be logged. The port stays even if it is the scheme's own: curl takes 1080 for
 * the port of a proxy without one.
 */
export function withCredentials(url: string, token: string): string {
  return url.replace("://", () => `://cdi:${encodeURIComponent(token)}@`);
}

/** The merge patch that sets the wanted values in the CDI object. */
export function cdiPatch(wanted: ImportProxy): { spec: { config: { importProxy: ImportProxy } } } {
  return { spec: { config: { importProxy: wanted } } };
}

/** Returns true if the object has the wanted values. Its other keys are ignored. */
export function isCurrent(cdi: { readonly spec?: unknown }, wanted: ImportProxy): boolean {
  const present = property(property(property(cdi, "spec"), "config"), "importProxy");
  return Object.entries(wanted).every(([key, value]) => property(present, key) === value);
}

function property(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>)[key] : undefined;
}
