import { withoutEnd } from "#base/text";
import type { Authenticator } from "#cloud/rest";

/**
 * The same right to make requests, at the URL below which `/v2.0` is: catalogues and files name an endpoint of Neutron with or without that version, and
 * with or without a slash at the end (docs/spec/vpc-nics.md#6.2).
 */
export function atNeutron(auth: Authenticator): Authenticator {
  return {
    endpoint: async (options) => withoutVersion(await auth.endpoint(options)),
    headers: async (options) => auth.headers(options),
    refused: (headers) => auth.refused(headers),
  };
}

function withoutVersion(endpoint: URL): URL {
  const url = new URL(endpoint);
  url.pathname = withoutEnd(url.pathname, "/").replace(/\/v2\.0$/, "");
  return url;
}
