import * as v from "valibot";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { openSession, type SessionOptions } from "#cloud/keystone";
import type { Authenticator, RestClientOptions } from "#cloud/rest";
import type { VpcProvider } from "./provider.ts";

/** The collaborators of a provider. */
export interface CloudDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

/** The settings with which a provider is opened. */
export interface CloudInit
  extends Pick<RestClientOptions, "ca" | "onRequest" | "onCircuit">,
    Pick<SessionOptions, "access" | "onRefresh"> {
  /** The name of the provider in the NicPolicy. */
  readonly name: string;
  /** The `config` of the provider in the NicPolicy, as it is. */
  readonly config: unknown;
  /** Called after each request that has created ports, with their number. */
  readonly onCreate?: ((count: number) => void) | undefined;
}

/** One kind of cloud. */
export interface Cloud {
  /** The `type` of its providers in a NicPolicy. */
  readonly type: string;
  /** The types of plugging that its ports can have, and that a device of the node plugs. */
  readonly vifTypes: readonly string[];
  /** True: a port is ready when its device is plugged, which only the node sees; false: when the cloud says `ACTIVE`. */
  readonly isReadyWhenPlugged: boolean;
  /** True if the name of a VPC, without a project, may be that of a VPC of any project. `config` is that of the provider, as it is. Pure. */
  hasNamesOfAnyProject(config: Readonly<Record<string, unknown>>): boolean;
  /** Opens a provider, which asks nothing by itself; disposing it ends its connections. Throws {@link CloudConfigError}. */
  open(deps: CloudDeps, init: CloudInit): VpcProvider;
}

/** Thrown for a `config` of a provider that its kind of cloud does not take; the message names all faults. */
export class CloudConfigError extends ExpectedError<"config"> {
  override readonly name = "CloudConfigError";
}

/** The config of a provider. Throws {@link CloudConfigError}. */
export function readConfig<Schema extends v.GenericSchema>(
  schema: Schema,
  { name, config = {} }: Pick<CloudInit, "name" | "config">,
): v.InferOutput<Schema> {
  const result = v.safeParse(schema, config);
  if (result.success) return result.output;
  const faults = result.issues.map((issue) => `${v.getDotPath(issue) ?? "config"}: ${issue.message}`);
  throw new CloudConfigError("config", `the config of provider ${name}: ${faults.join("; ")}`);
}

/** The session of a provider with its service of networks, and the options of its REST client that no kind of cloud changes. */
export function openAccess(
  deps: CloudDeps,
  { access, ca, onRefresh, onRequest, onCircuit }: CloudInit,
): {
  readonly auth: Authenticator & AsyncDisposable;
  readonly rest: Omit<RestClientOptions, "service" | "faultOf">;
} {
  const auth = openSession(deps, { access, ca, service: "network", onRefresh });
  return { auth, rest: { ca, verifiesTls: access.verifiesTls, onRequest, onCircuit } };
}
