import * as v from "valibot";
import { withoutEnd } from "#base/text";
import { CloudError } from "#cloud/rest";
import type { CloudCredentials, DomainName } from "./credentials.ts";

/** A token, and where the cloud's services are. */
export interface KeystoneToken {
  readonly token: string;
  /** For how long it is valid after it was issued, in milliseconds, by Keystone's own clock. */
  readonly lifeMs: number;
  readonly catalog: readonly CatalogService[];
}

interface CatalogService {
  readonly type: string;
  readonly endpoints: readonly { readonly interface: string; readonly region: string; readonly url: string }[];
}

/** Credentials that Keystone gives a token for. */
export type KeystoneCredentials = Extract<CloudCredentials, { kind: "password" | "application-credential" }>;

/** The URL of the Identity API v3; a cloud's own `auth_url` may have the version or not. */
export function versionedUrl(authUrl: URL): URL {
  const path = withoutEnd(authUrl.pathname, "/");
  return new URL(path.endsWith("/v3") ? path : `${path}/v3`, authUrl);
}

/** Reads the body `{"error": {…}}` of Keystone, and of services that refuse a token. */
export function keystoneFault(body: unknown): { readonly type?: string; readonly message?: string } {
  const result = v.safeParse(
    v.object({ error: v.object({ title: v.optional(v.string()), message: v.optional(v.string()) }) }),
    body,
  );
  if (!result.success) return {};
  const { title, message } = result.output.error;
  return { ...(title === undefined ? {} : { type: title }), ...(message === undefined ? {} : { message }) };
}

/** The body of `POST /v3/auth/tokens` (Identity API v3). Pure. */
export function authBody(credentials: KeystoneCredentials): object {
  if (credentials.kind === "password") {
    const { password, ...user } = credentials.user;
    const identity = { methods: ["password"], password: { user: { ...domainName(user), password } } };
    return { auth: { identity, scope: { project: domainName(credentials.project) } } };
  }
  const { credential, secret } = credentials;
  const named =
    "id" in credential ? { id: credential.id } : { name: credential.name, user: domainName(credential.user) };
  // An application credential has its scope itself; a request with another one is refused.
  return { auth: { identity: { methods: ["application_credential"], application_credential: { ...named, secret } } } };
}

function domainName(one: DomainName): object {
  return "id" in one ? { id: one.id } : { name: one.name, domain: one.domain };
}

const tokenSchema = v.object({
  token: v.object({
    issued_at: v.optional(v.string()),
    expires_at: v.string(),
    catalog: v.optional(
      v.array(
        v.object({
          type: v.string(),
          endpoints: v.array(
            v.object({
              interface: v.string(),
              region_id: v.nullish(v.string()),
              region: v.nullish(v.string()),
              url: v.string(),
            }),
          ),
        }),
      ),
      [],
    ),
  }),
});

/**
 * Reads the answer to {@link authBody}, which came at `nowMs`. The life of a token is between its two times: this machine's clock may differ from
 * Keystone's. Throws `bad-response`.
 */
export function parseToken(token: string | undefined, body: unknown, nowMs: number): KeystoneToken {
  const result = v.safeParse(tokenSchema, body);
  const { issued_at: issuedAt, expires_at: expiresAt = "" } = result.success ? result.output.token : {};
  const lifeMs = Math.max(Date.parse(expiresAt) - (issuedAt === undefined ? nowMs : Date.parse(issuedAt)), 0);
  if (token === undefined || token === "" || !result.success || Number.isNaN(lifeMs)) {
    throw new CloudError("bad-response", "Cannot authenticate: Keystone's answer has no token, end and catalogue");
  }
  const catalog = result.output.token.catalog.map(({ type, endpoints }) => ({
    type,
    endpoints: endpoints.map((one) => ({
      interface: one.interface,
      region: one.region_id ?? one.region ?? "",
      url: one.url,
    })),
  }));
  return { token, lifeMs, catalog };
}

/** Which URL of a service. */
export interface EndpointChoice {
  /** The type of the service: `network`. */
  readonly type: string;
  readonly interface: string;
  /** Default: the only region that has the service. */
  readonly region: string | undefined;
}

/** The URL of a service in a catalogue. Throws {@link CloudError} `not-found` with what there is. */
export function endpointOf({ catalog }: Pick<KeystoneToken, "catalog">, choice: EndpointChoice): URL {
  const all = catalog.filter(({ type }) => type === choice.type).flatMap(({ endpoints }) => endpoints);
  const ofInterface = all.filter((one) => one.interface === choice.interface);
  const found = ofInterface.filter(({ region }) => choice.region === undefined || region === choice.region);
  const regions = [...new Set(found.map(({ region }) => region))];
  const [first] = found;
  const url = first === undefined || regions.length > 1 ? null : URL.parse(first.url);
  if (url !== null) return url;
  const wanted = `service ${choice.type}, interface ${choice.interface}${choice.region === undefined ? "" : `, region ${choice.region}`}`;
  const there = all.map((one) => `${one.interface} in ${one.region}`).join(", ");
  const why =
    regions.length > 1
      ? `region_name must say which region: ${regions.join(", ")}`
      : `it has ${there === "" ? "none" : there}`;
  throw new CloudError("not-found", `Keystone's catalogue has no URL of ${wanted}: ${why}`);
}
