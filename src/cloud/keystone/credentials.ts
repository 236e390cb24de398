import * as v from "valibot";
import { ExpectedError } from "#base/errors";
import { parseYaml, YamlError } from "#base/yaml";

/**
 * - `invalid`: the file of credentials does not say what is needed; each fault is a line of the message.
 */
export type CredentialsErrorCode = "invalid";

/** Credentials that cannot be used. The message never has a secret. */
export class CredentialsError extends ExpectedError<CredentialsErrorCode> {
  override readonly name = "CredentialsError";
}

/** By which right requests are made (docs/spec/vpc-nics.md#6.2). */
export type CloudCredentials =
  | {
      readonly kind: "password";
      readonly authUrl: URL;
      readonly user: DomainName & { readonly password: string };
      readonly project: DomainName;
    }
  | {
      readonly kind: "application-credential";
      readonly authUrl: URL;
      readonly secret: string;
      /** The id, or the name together with its user. */
      readonly credential: { readonly id: string } | { readonly name: string; readonly user: DomainName };
    }
  | { readonly kind: "token"; readonly token: string; readonly endpoint: URL }
  | { readonly kind: "none"; readonly endpoint: URL };

/** A user or project: its id, or its name in a domain. */
export type DomainName =
  | { readonly id: string }
  | { readonly name: string; readonly domain: { readonly id: string } | { readonly name: string } };

/** What a file of credentials says besides. */
export interface CloudAccess {
  readonly credentials: CloudCredentials;
  /** Default: the only region of the catalogue. */
  readonly region: string | undefined;
  /** Which of a service's URLs. */
  readonly interface: "public" | "internal" | "admin";
  /** A file of certificates of authorities, in PEM. */
  readonly caFile: string | undefined;
  readonly verifiesTls: boolean;
}

const MAX_TEXT = 4096;
const text = v.pipe(
  v.string("must be a text"),
  v.nonEmpty("is empty"),
  v.maxLength(MAX_TEXT, `must have at most ${MAX_TEXT} characters`),
);
const url = v.pipe(
  text,
  v.check((value) => /^https?:$/.test(URL.parse(value)?.protocol ?? ""), "must be a URL with http or https"),
  v.transform((value) => new URL(value)),
);
const optional = v.exactOptional;

const auth = v.strictObject({
  auth_url: optional(url),
  endpoint: optional(url),
  token: optional(text),
  username: optional(text),
  user_id: optional(text),
  password: optional(text),
  user_domain_name: optional(text),
  user_domain_id: optional(text),
  project_name: optional(text),
  project_id: optional(text),
  project_domain_name: optional(text),
  project_domain_id: optional(text),
  application_credential_id: optional(text),
  application_credential_name: optional(text),
  application_credential_secret: optional(text),
});
type Auth = v.InferOutput<typeof auth>;

const AUTH_TYPES = ["password", "v3password", "v3applicationcredential", "token", "none"] as const;
const INTERFACES = ["public", "internal", "admin"] as const;

const cloud = v.strictObject({
  auth_type: optional(v.picklist(AUTH_TYPES, `must be one of ${AUTH_TYPES.join(", ")}`), "password"),
  auth,
  region_name: optional(text),
  interface: optional(v.picklist(INTERFACES, `must be one of ${INTERFACES.join(", ")}`), "public"),
  cacert: optional(text),
  verify: optional(v.boolean("must be true or false"), true),
  identity_api_version: optional(v.union([v.literal("3"), v.literal(3)], "must be 3"), "3"),
});

const file = v.strictObject({ clouds: v.record(text, cloud, "must have one cloud") });

/**
 * Reads a file in the form of OpenStack's `clouds.yaml`, with one cloud. Throws {@link CredentialsError} with all faults, each with its
 * field.
 */
export function parseCredentials(yaml: string): CloudAccess {
  let value: unknown;
  try {
    ({ value } = parseYaml(yaml));
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    throw new CredentialsError("invalid", `the credentials are not YAML: ${error.message}`);
  }
  const result = v.safeParse(file, value);
  if (!result.success) {
    const faults = result.issues.map((issue) => `${v.getDotPath(issue) ?? "the file"}: ${issue.message}`);
    throw new CredentialsError("invalid", `the credentials have faults: ${faults.join("; ")}`);
  }
  const clouds = Object.entries(result.output.clouds);
  const [entry] = clouds;
  if (entry === undefined || clouds.length > 1) {
    throw new CredentialsError(
      "invalid",
      `the credentials have faults: clouds: must have one cloud, has ${clouds.length}`,
    );
  }
  const [name, one] = entry;
  return {
    credentials: credentialsOf(one.auth_type, new Fields(one.auth, `clouds.${name}.auth`)),
    region: one.region_name,
    interface: one.interface,
    caFile: one.cacert,
    verifiesTls: one.verify,
  };
}

/** The fields of `auth`, which give a fault for each that is needed and missing. */
class Fields {
  readonly #auth: Auth;
  readonly #path: string;

  constructor(values: Auth, path: string) {
    this.#auth = values;
    this.#path = path;
  }

  need<Key extends keyof Auth>(key: Key, why: string): NonNullable<Auth[Key]> {
    const value = this.#auth[key];
    if (value === undefined) this.fail(key, `is missing: ${why}`);
    return value as NonNullable<Auth[Key]>;
  }

  get<Key extends keyof Auth>(key: Key): Auth[Key] {
    return this.#auth[key];
  }

  fail(key: string, why: string): never {
    throw new CredentialsError("invalid", `the credentials have faults: ${this.#path}.${key}: ${why}`);
  }

  /** A user or project by `<kind>_id`, or by its name and domain. */
  named(kind: "user" | "project"): DomainName {
    const id = this.get(`${kind}_id`);
    if (id !== undefined) return { id };
    const nameKey = kind === "user" ? "username" : "project_name";
    const name = this.need(nameKey, `it or ${kind}_id says whose right it is`);
    const domainId = this.get(`${kind}_domain_id`);
    if (domainId !== undefined) return { name, domain: { id: domainId } };
    return { name, domain: { name: this.need(`${kind}_domain_name`, `${nameKey} is a name in a domain`) } };
  }
}

function credentialsOf(type: (typeof AUTH_TYPES)[number], fields: Fields): CloudCredentials {
  switch (type) {
    case "password":
    case "v3password":
      return {
        kind: "password",
        authUrl: fields.need("auth_url", "Keystone's URL"),
        user: { ...fields.named("user"), password: fields.need("password", "auth_type password needs it") },
        project: fields.named("project"),
      };
    case "v3applicationcredential":
      return {
        kind: "application-credential",
        authUrl: fields.need("auth_url", "Keystone's URL"),
        secret: fields.need("application_credential_secret", "an application credential has a secret"),
        credential: applicationCredential(fields),
      };
    case "token":
      return {
        kind: "token",
        token: fields.need("token", "auth_type token needs it"),
        endpoint: fields.need("endpoint", "without Keystone there is no catalogue"),
      };
    case "none":
      return { kind: "none", endpoint: fields.need("endpoint", "without Keystone there is no catalogue") };
  }
}

function applicationCredential(
  fields: Fields,
): Extract<CloudCredentials, { kind: "application-credential" }>["credential"] {
  const id = fields.get("application_credential_id");
  if (id !== undefined) return { id };
  const name = fields.need("application_credential_name", "it or application_credential_id names the credential");
  return { name, user: fields.named("user") };
}
