import { homedir } from "node:os";
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

/** The credentials with which requests are made (docs/spec/vpc-nics.md#6.2). */
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

/** The settings of a file of credentials beside the credentials. */
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
/** Null and an empty text count as absent, and a number as its text: YAML makes numbers of names and passwords of digits. */
const text = v.pipe(
  v.nullish(v.union([v.string(), v.number()], "must be a text")),
  v.transform((value) => (value === undefined || value === null || value === "" ? undefined : String(value))),
  v.optional(v.pipe(v.string(), v.maxLength(MAX_TEXT, `must have at most ${MAX_TEXT} characters`))),
);
const url = v.pipe(
  text,
  v.check(
    (value) => value === undefined || /^https?:$/.test(URL.parse(value)?.protocol ?? ""),
    "must be a URL with http or https",
  ),
  v.transform((value) => (value === undefined ? undefined : new URL(value))),
);
/** Also in the words of YAML 1.1, which PyYAML reads. */
const flag = v.pipe(
  v.nullish(
    v.union([v.boolean(), v.pipe(v.string(), v.regex(/^(true|yes|on|false|no|off)$/i))], "must be true or false"),
  ),
  v.transform((value) => (typeof value === "string" ? /^(true|yes|on)$/i.test(value) : (value ?? undefined))),
);

const AUTH_FIELDS = {
  auth_url: url,
  endpoint: url,
  token: text,
  username: text,
  user_id: text,
  password: text,
  user_domain_name: text,
  user_domain_id: text,
  project_name: text,
  project_id: text,
  project_domain_name: text,
  project_domain_id: text,
  application_credential_id: text,
  application_credential_name: text,
  application_credential_secret: text,
} as const;
const auth = v.looseObject(
  Object.fromEntries(Object.entries(AUTH_FIELDS).map(([name, schema]) => [name, v.optional(schema)])) as {
    readonly [Name in keyof typeof AUTH_FIELDS]: v.OptionalSchema<(typeof AUTH_FIELDS)[Name], undefined>;
  },
);
type Auth = Pick<v.InferOutput<typeof auth>, keyof typeof AUTH_FIELDS>;

/** Other names of the same field (`openstack/config/loader.py` of openstacksdk). */
const OLDER: Readonly<Record<string, string>> = {
  tenant_name: "project_name",
  tenant_id: "project_id",
  user_name: "username",
  auth_token: "token",
};
/** These count for users and projects where neither says its own domain. */
const SHARED_DOMAIN = ["domain_id", "domain_name", "default_domain_id", "default_domain_name"] as const;

const AUTH_TYPES = [
  "password",
  "v3password",
  "v3applicationcredential",
  "token",
  "admin_token",
  "none",
  "noauth",
] as const;
const INTERFACES = ["public", "internal", "admin"] as const;
type Interface = (typeof INTERFACES)[number];

/** `interface` and its older name `endpoint_type`, whose values end in `URL`, are read by this. */
const interfaceOf = v.pipe(
  text,
  v.transform((value) => value?.replace(/URL$/, "")),
  v.optional(v.picklist(INTERFACES, `must be one of ${INTERFACES.join(", ")}`)),
);
const region = v.union([v.string(), v.looseObject({ name: v.string() })], "must be a name, or have one");

const cloud = v.looseObject({
  auth_type: v.optional(v.pipe(text, v.optional(v.picklist(AUTH_TYPES, `must be one of ${AUTH_TYPES.join(", ")}`)))),
  auth: v.optional(auth, {}),
  region_name: v.optional(text),
  regions: v.optional(v.array(region, "must be a list")),
  interface: v.optional(interfaceOf),
  endpoint_type: v.optional(interfaceOf),
  cacert: v.optional(text),
  verify: v.optional(flag),
  insecure: v.optional(flag),
  identity_api_version: v.optional(
    v.pipe(
      text,
      v.check((value) => value === undefined || /^v?3(\.\d+)?$/.test(value), "must be 3"),
    ),
  ),
  cert: v.optional(
    v.pipe(
      text,
      v.check((value) => value === undefined, "is not supported: requests have no client certificate"),
    ),
  ),
});

const file = v.looseObject({
  clouds: v.record(v.string(), v.pipe(v.unknown(), v.transform(withOwnNames), cloud), "must have one cloud"),
});

type Mapping = Readonly<Record<string, unknown>>;

function isMapping(value: unknown): value is Mapping {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Pure: a cloud with the names that we read: hyphens are underscores, fields of `auth` may stand beside it, and a domain that is said once is that of user and project. */
function withOwnNames(value: unknown): unknown {
  if (!isMapping(value)) return value;
  const own = underscored(value);
  if (own["auth"] !== undefined && own["auth"] !== null && !isMapping(own["auth"])) return own;
  const fields: Record<string, unknown> = {};
  const known = new Set<string>([...Object.keys(AUTH_FIELDS), ...SHARED_DOMAIN]);
  for (const [name, one] of [...Object.entries(own), ...Object.entries(underscored((own["auth"] ?? {}) as Mapping))]) {
    const field = OLDER[name] ?? name;
    if (known.has(field) && one !== null && one !== "") fields[field] = one;
  }
  for (const whose of ["user", "project"])
    for (const key of ["id", "name"]) {
      const shared = fields[`domain_${key}`] ?? fields[`default_domain_${key}`];
      const isSaid = fields[`${whose}_domain_id`] !== undefined || fields[`${whose}_domain_name`] !== undefined;
      if (!isSaid && shared !== undefined) fields[`${whose}_domain_${key}`] = shared;
    }
  return { ...own, auth: fields };
}

function underscored(mapping: Mapping): Mapping {
  return Object.fromEntries(Object.entries(mapping).map(([name, value]) => [name.replaceAll("-", "_"), value]));
}

/**
 * Reads a file in the form of OpenStack's `clouds.yaml`, with one cloud, as openstacksdk reads it: what it says to others is ignored. Throws {@link CredentialsError} with
 * all faults, each with its field.
 */
export function parseCredentials(yaml: string): CloudAccess {
  let value: unknown;
  try {
    ({ value } = parseYaml(yaml, { aliases: true }));
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
  const [first] = one.regions ?? [];
  return {
    credentials: credentialsOf(one.auth_type ?? defaultType(one.auth), new Fields(one.auth, `clouds.${name}.auth`)),
    region: one.region_name ?? (typeof first === "object" ? first.name : first),
    interface: one.interface ?? one.endpoint_type ?? ("public" satisfies Interface),
    caFile: one.cacert?.replace(/^~(?=\/)/, homedir()),
    verifiesTls: one.insecure !== true && one.verify !== false,
  };
}

/** Without `auth_type` the fields decide. */
function defaultType(fields: Auth): (typeof AUTH_TYPES)[number] {
  if (fields.application_credential_secret !== undefined) return "v3applicationcredential";
  return fields.token === undefined ? "password" : "token";
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
    case "admin_token":
      return {
        kind: "token",
        token: fields.need("token", "auth_type token needs it"),
        endpoint: fields.need("endpoint", "without Keystone there is no catalogue"),
      };
    case "none":
    case "noauth":
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
