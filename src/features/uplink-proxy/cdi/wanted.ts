import type { Settings } from "#base/uplink-model";
import { formatHostPort } from "#wire/http-connect";
import { CA_CONFIG_MAP, type ImportProxy, importProxy, withCredentials } from "./import-proxy.ts";

/** The proxy for importer pods, and the certificate that they need for it. */
export interface CdiWanted {
  readonly proxy: ImportProxy;
  /** PEM of the certificate; published before the URL, because clients of the URL need it. */
  readonly caPem?: string;
}

/** The login and the certificate of the listener for pods, which its owner renews. */
export interface CdiAccess {
  /** The accepted tokens, the newest first; `undefined` until they exist. */
  readonly tokens: readonly string[] | undefined;
  /** PEM; `undefined` until it exists. */
  readonly certificate: string | undefined;
  /** Called when the CDI object has the wanted values; `hasCertificate`: with a certificate, so that TLS can be required. */
  published(hasCertificate: boolean): void;
}

/** Pure: the wanted CDI object; `undefined` without a listener for pods, and until its secrets exist. */
export function cdiWanted(settings: Settings, access: Omit<CdiAccess, "published">): CdiWanted | undefined {
  const listener = settings.listeners.find(({ role }) => role === "pod");
  if (listener === undefined) return undefined;
  const ranges = { podCIDRs: settings.routing.podCIDRs, serviceCIDRs: settings.routing.serviceCIDRs };
  const isSecure = listener.tls !== "off";
  const at = formatHostPort({ host: listener.address.toString(), port: listener.port });
  const url = `${isSecure ? "https" : "http"}://${at}`;
  if (listener.auth === "none" && !isSecure) return { proxy: importProxy(url, ranges) };
  const [token] = access.tokens ?? [];
  const caPem = access.certificate;
  if (token === undefined || caPem === undefined) return undefined;
  const withToken = withCredentials(url, token);
  if (!isSecure) return { proxy: importProxy(withToken, ranges) };
  return { proxy: importProxy(withToken, { ...ranges, trustedCAProxy: CA_CONFIG_MAP.name }), caPem };
}
