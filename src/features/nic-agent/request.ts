import * as v from "valibot";
import { byteHandlers, type CniArgs, type CniCaller } from "#wire/cnirpc";
import { NicCallError } from "./failure.ts";

const whole = (max: number) => v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(max));
const path = v.pipe(v.string(), v.regex(/^(unix:)?\//, "must be a path of a UNIX socket"));
/** A wait that is longer would outlive the call: the executable gives up after 60 s. */
const MAX_WAIT_MS = 50_000;

/** The configuration of a network (docs/spec/vpc-nics.md#8.1, #9), whose `type` is one of those that are served. Unknown keys are other readers'. */
const configSchema = v.object({
  name: v.pipe(v.string(), v.minLength(1)),
  type: v.string(),
  plumbTimeoutMs: v.optional(whole(MAX_WAIT_MS), 30_000),
  activeTimeoutMs: v.optional(whole(MAX_WAIT_MS), 15_000),
  plugMode: v.optional(v.picklist(["auto", "hybrid", "direct"])),
  vmMode: v.optional(v.picklist(["veth", "tap"]), "veth"),
  vmMultiQueue: v.optional(v.boolean(), false),
  vmOwnerUid: v.optional(whole(0xffff_fffe)),
  ovsdb: v.optional(path),
  integrationBridge: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(15))),
  bindBy: v.optional(
    v.literal("controller", 'only "controller" is built: nodes hold no credentials of the cloud'),
    "controller",
  ),
  requireActive: v.optional(v.boolean(), true),
  nsPrefix: v.optional(v.pipe(v.string(), v.regex(/^[a-zA-Z0-9_-]{1,64}$/))),
  probe_tm_ms: v.optional(whole(60_000), 0),
  mizarTuning: v.optional(v.boolean(), true),
  runtimeConfig: v.optional(v.looseObject({})),
});

/** A network's configuration, with defaults. */
export type NicNetworkConfig = Readonly<v.InferOutput<typeof configSchema>>;

/** A call of the CNI executable. */
export interface NicCall {
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
  readonly podUid: string | undefined;
  readonly namespace: string | undefined;
  readonly podName: string | undefined;
  /** The pod's annotations, if the runtime passes them. */
  readonly annotations: Readonly<Record<string, string>> | undefined;
  readonly config: NicNetworkConfig;
}

/** The capability by which runtimes pass all annotations of a pod. */
const ANNOTATIONS = "io.kubernetes.cri.pod-annotations";

/** Reads a call of a network with one of these types. Throws {@link NicCallError}, which names all faults of the configuration. */
export function parseNicCall(args: CniArgs, types: readonly string[]): NicCall {
  const { containerId, netns, ifname } = args;
  if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$/.test(containerId))
    throw new NicCallError(
      "invalid-arguments",
      `"${containerId.slice(0, 200)}" is not a container id of at most 128 characters`,
    );
  const text = (key: string): string | undefined => (args.args[key] === "" ? undefined : args.args[key]);
  const config = parseConfig(args, types);
  return {
    containerId,
    netns,
    ifname,
    args: args.args,
    podUid: text("K8S_POD_UID"),
    namespace: text("K8S_POD_NAMESPACE"),
    podName: text("K8S_POD_NAME"),
    annotations: annotationsOf(config),
    config,
  };
}

function parseConfig({ stdinData }: CniArgs, types: readonly string[]): NicNetworkConfig {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(stdinData));
  } catch (error) {
    throw new NicCallError("invalid-config", "the network configuration is not JSON", { cause: error });
  }
  const result = v.safeParse(v.object({ ...configSchema.entries, type: v.picklist(types) }), value);
  if (result.success) return result.output;
  const faults = result.issues.map((issue) => `${v.getDotPath(issue) ?? "it"}: ${issue.message}`);
  throw new NicCallError("invalid-config", `network configuration: ${faults.slice(0, 10).join("; ")}`);
}

function annotationsOf({ runtimeConfig }: NicNetworkConfig): Readonly<Record<string, string>> | undefined {
  const given = runtimeConfig?.[ANNOTATIONS];
  if (typeof given !== "object" || given === null || Array.isArray(given)) return undefined;
  const pairs = Object.entries(given).filter((pair): pair is [string, string] => typeof pair[1] === "string");
  return Object.fromEntries(pairs);
}

/** The handlers of a gRPC server for these calls. They reject with {@link NicCallError} `invalid-arguments` for a message that cannot be decoded. */
export function nicHandlers(call: CniCaller): ReturnType<typeof byteHandlers> {
  return byteHandlers(call, (error) => new NicCallError("invalid-arguments", error.message, { cause: error }));
}
