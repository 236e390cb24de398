import { type AbortOptions, KeyedMutex } from "#base/async";
import type { Clock } from "#base/clock";
import { assertNever, describeError, ExpectedError } from "#base/errors";
import type { IpAddress, MacAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { staticUid } from "#kube/static-pods";
import { CniError, type CniResult, parseNetworkConfig } from "#wire/cni";
import { byteHandlers, type CniArgs, type CniCaller, type ContainerMethod, type GcArgs } from "#wire/cnirpc";
import { addChained, type ChainedDeps, checkChained } from "./chained-service.ts";
import type { ClientDeps } from "./client-deps.ts";
import { CniFailure } from "./failure.ts";
import type { GrpcHandler } from "./grpc-server.ts";
import type { FoundPod, PodIdentity } from "./pod-identity.ts";
import { linkSettings, requestedMac } from "./settings.ts";

/** One interface of one container. */
export interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** Addresses for an attachment, at most one of each family. */
export interface Addresses {
  readonly pool: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** The result of an allocation. */
export interface Allocation extends Addresses {
  /** True if the attachment had no addresses before this call, so that no earlier ADD can use them. */
  readonly fresh: boolean;
}

/** The dependencies of every coild. The functions reject with {@link CniFailure}; any other error has the code 999. */
interface CommonDeps {
  /** The name of this Node. */
  readonly nodeName: string;
  /** Reads the pod live; `undefined` if there is no pod of that name. */
  readonly findPod: (namespace: string, name: string, options: AbortOptions) => Promise<FoundPod | undefined>;
  /** `undefined`: pods get no NAT client. */
  readonly clients?: ClientDeps | undefined;
  /** The reason why ADD cannot be served now, or why pods have no network; `undefined` if there is no such fault. */
  readonly status: () => CniFailure | undefined;
  /** True if a new sandbox of a pod replaces the old one; calls for one pod then run one after the other. */
  readonly oneSandboxPerPod: boolean;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * The dependencies of the service of a coild with address management. They reject with {@link CniFailure}; any other error has the code
 * 999.
 */
export interface CniDeps extends CommonDeps {
  /** The pool for a pod: its namespace's, or that of the Egress whose router it is. */
  readonly poolOf: (pod: FoundPod, options: AbortOptions) => Promise<string>;
  /** Resolves once addresses can be allocated. */
  readonly ready: (options: AbortOptions) => Promise<void>;
  readonly allocate: (pool: string, attachment: Attachment, options: AbortOptions) => Promise<Allocation>;
  /** Call this when the ADD of an allocation has ended, with or without success. Does nothing if there was no allocation. */
  readonly settle: (attachment: Attachment) => void;
  /** Frees the addresses of an attachment. Does nothing if it has none. */
  readonly free: (attachment: Attachment) => void;
  readonly network: {
    /** Makes an attachment, which may lack the address of one family; the result says so. A failed call removes what it has made; if that fails too, the error is an AggregateError. */
    setUp(
      request: {
        readonly attachment: Attachment;
        readonly netns: string;
        readonly addresses: Addresses;
        readonly pod: FoundPod;
        readonly networkName: string | undefined;
        readonly mtuBytes: number | undefined;
        /** The address of the pod's interface; `undefined`: the kernel chooses one. */
        readonly mac: MacAddress | undefined;
      },
      options: AbortOptions,
    ): Promise<CniResult>;
    /** The attachments that were made for a network. */
    ofNetwork(network: string): readonly Attachment[];
    /** Removes an attachment. Succeeds if it does not exist. */
    tearDown(attachment: Attachment): Promise<void>;
    /** Checks an attachment. Rejects with an error that names the first missing part. */
    check(request: {
      readonly attachment: Attachment;
      readonly netns: string;
      readonly expected: CniResult | undefined;
      /** The address that the runtime demanded for the pod's interface. */
      readonly mac: MacAddress | undefined;
    }): Promise<void>;
  };
}

/** The dependencies of the service of a coild without address management, which is behind another plugin. */
export interface ChainedCniDeps extends CommonDeps {
  readonly chained: ChainedDeps;
}

/**
 * ADD, DEL, CHECK, STATUS and GC. Calls of one container run one after the other, those of different containers side by side. Behind
 * another plugin DEL and GC have nothing to release: coild's mark is deleted together with that plugin's link.
 */
export class CniService {
  readonly #deps: CniDeps | ChainedCniDeps;
  readonly #containers = new KeyedMutex();
  readonly #pods = new KeyedMutex();

  constructor(deps: CniDeps | ChainedCniDeps) {
    this.#deps = deps;
  }

  /** The gRPC methods by path. */
  get handlers(): Readonly<Record<string, GrpcHandler>> {
    return cniHandlers(this.call);
  }

  /** Makes a call. Rejects with {@link CniFailure}. */
  readonly call: CniCaller = async (call, { signal }) => {
    switch (call.method) {
      case "Add":
        return await this.#logged(call.method, call.args, () => this.#add(call.args, signal), signal);
      case "Del":
        return await this.#logged(call.method, call.args, () => this.#del(call.args), signal);
      case "Check":
        return await this.#logged(call.method, call.args, () => this.#check(call.args, signal), signal);
      case "Status":
        return this.#status();
      case "GC":
        return await this.#gc(call.args, signal);
      default:
        return assertNever(call);
    }
  };

  /**
   * Removes an attachment that no call will remove, in turn with the calls of its container. Rejects with {@link CniFailure} if its link cannot be removed: its address
   * stays taken then. Does nothing behind another plugin.
   */
  async collect(attachment: Attachment, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    const deps = this.#deps;
    if ("chained" in deps) return;
    await this.#containers.run(attachment.containerId, () => release(deps, attachment), { signal });
  }

  async #logged<T>(method: ContainerMethod, args: CniArgs, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const { clock, log } = this.#deps;
    const startMs = clock.monotonic();
    const seconds = (): number => Number(((clock.monotonic() - startMs) / 1000).toFixed(4));
    const fields = {
      method,
      namespace: args.args["K8S_POD_NAMESPACE"],
      pod: args.args["K8S_POD_NAME"],
      netns: args.netns,
      ifname: args.ifname,
      containerID: args.containerId,
    };
    try {
      const reply = await this.#inTurn(args, work, signal);
      log.info("finished call", { ...fields, code: "OK", seconds: seconds() });
      return reply;
    } catch (error) {
      const failure = failureOf(error, signal);
      const code = failure instanceof CniFailure ? failure.code : "bug";
      log.warn("failed call", { ...fields, code, error: describeError(failure), seconds: seconds() });
      throw failure;
    }
  }

  #inTurn<T>(args: CniArgs, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const { K8S_POD_NAMESPACE: namespace = "", K8S_POD_NAME: name = "" } = args.args;
    const isOfPod = this.#deps.oneSandboxPerPod && namespace !== "" && name !== "";
    const forPod = isOfPod ? () => this.#pods.run(`${namespace}/${name}`, work, { signal }) : work;
    return this.#containers.run(args.containerId, forPod, { signal });
  }

  #status(): undefined {
    const failure = this.#deps.status();
    if (failure !== undefined) throw failure;
  }

  /** Removes the network's attachments that the runtime does not list. If one cannot be removed, the others are removed all the same. */
  async #gc({ network, attachments }: GcArgs, signal: AbortSignal): Promise<undefined> {
    if (network === "")
      throw new CniFailure("invalid-arguments", "GC needs the name of a network in the configuration");
    const valid = new Set(attachments.map(({ containerId, ifname }) => `${containerId}/${ifname}`));
    const isValid = ({ containerId, ifname }: Attachment): boolean => valid.has(`${containerId}/${ifname}`);
    const failures: unknown[] = [];
    let removed = 0;
    const deps = this.#deps;
    if ("chained" in deps) return;
    for (const one of deps.network.ofNetwork(network)) {
      if (isValid(one)) continue;
      try {
        await this.collect(one, { signal });
        removed += 1;
        this.#deps.log.info("GC removed an attachment that the runtime does not list", {
          network,
          containerID: one.containerId,
          ifname: one.ifname,
        });
      } catch (error) {
        if (!(error instanceof ExpectedError)) throw failureOf(error, signal);
        failures.push(error);
      }
    }
    this.#deps.log.info("finished call", {
      method: "GC",
      network,
      valid: valid.size,
      removed,
      failed: failures.length,
    });
    if (failures.length === 0) return;
    const cause = new AggregateError(failures);
    throw new CniFailure("internal", `GC: ${failures.map(describeError).slice(0, 5).join("; ")}`, { cause });
  }

  async #add(args: CniArgs, signal: AbortSignal): Promise<CniResult> {
    const deps = this.#deps;
    const attachment = attachmentOf(args);
    if (args.netns === "") throw new CniFailure("invalid-arguments", "ADD needs CNI_NETNS");
    if ("chained" in deps) {
      const findPod = (): Promise<FoundPod> => this.#findOwnPod(args, signal);
      return addChained(deps, { args, config: configOf(args), findPod }, { signal });
    }
    const { network } = deps;
    if (args.args["IS_CHAINED"] === "true") {
      throw new CniFailure(
        "invalid-config",
        "coil allocates addresses itself, so it must be the first plugin of its network, not chained after another; behind another plugin coild needs --enable-ipam=false",
      );
    }
    const settings = linkSettings(args.stdinData);
    const pod = await this.#findOwnPod(args, signal);
    await deps.ready({ signal });
    const pool = await deps.poolOf(pod, { signal });
    const { fresh, ...addresses } = await deps.allocate(pool, attachment, { signal });
    try {
      signal.throwIfAborted();
      const result = await network.setUp({ attachment, netns: args.netns, addresses, pod, ...settings }, { signal });
      const [ipv4, ipv6] = [addresses.ipv4, addresses.ipv6].map((one) => givenBy(result, one));
      await deps.clients?.setUp({ pod, netns: args.netns, ifname: attachment.ifname, ipv4, ipv6 }, { signal });
      return result;
    } catch (error) {
      // A pod may use the result of an earlier ADD: if a repeated ADD fails, that result is removed only by DEL.
      if (fresh) await undo(deps, attachment, error);
      throw error;
    } finally {
      deps.settle(attachment);
    }
  }

  async #del(args: CniArgs): Promise<undefined> {
    const attachment = attachmentOf(args);
    if (!("chained" in this.#deps)) await release(this.#deps, attachment);
  }

  async #check(args: CniArgs, signal: AbortSignal): Promise<undefined> {
    const deps = this.#deps;
    const config = configOf(args);
    const attachment = attachmentOf(args);
    if ("chained" in deps) {
      const findPod = (): Promise<FoundPod> => this.#findPod(args, signal);
      await checkChained(deps.chained, { args, config, named: podOf(args), findPod });
    } else {
      const mac = requestedMac(args.stdinData);
      await deps.network.check({ attachment, netns: args.netns, expected: config.prevResult, mac });
    }
    const [namespace = "", name = "", uid = ""] = ["NAMESPACE", "NAME", "UID"].map(
      (key) => args.args[`K8S_POD_${key}`],
    );
    await deps.clients?.check({ namespace, name, uid }, { signal });
  }

  /** As {@link CniService.#findPod}, for ADD: rejects if the Pod is bound to another Node, whose coild gives it addresses of its own. */
  async #findOwnPod(args: CniArgs, signal: AbortSignal): Promise<FoundPod> {
    const pod = await this.#findPod(args, signal);
    const { nodeName } = this.#deps;
    if (pod.nodeName === undefined || pod.nodeName === nodeName) return pod;
    throw new CniFailure(
      "unknown-pod",
      `pod ${pod.namespace}/${pod.name} is bound to node ${pod.nodeName}; this coild is of node ${nodeName} (COIL_NODE_NAME)`,
    );
  }

  /** The Pod that a call is for. The runtime may name another UID, so only the result's UID is that of the Pod. */
  async #findPod(args: CniArgs, signal: AbortSignal): Promise<FoundPod> {
    const namespace = args.args["K8S_POD_NAMESPACE"] ?? "";
    const name = args.args["K8S_POD_NAME"] ?? "";
    const missing = [namespace === "" ? "K8S_POD_NAMESPACE" : [], name === "" ? "K8S_POD_NAME" : []].flat();
    if (missing.length > 0) throw new CniFailure("invalid-arguments", `CNI_ARGS lacks ${missing.join(" and ")}`);
    const pod = await this.#deps.findPod(namespace, name, { signal });
    if (pod === undefined) throw new CniFailure("unknown-pod", `pod ${namespace}/${name} does not exist`);
    const uid = args.args["K8S_POD_UID"] ?? "";
    if (uid !== "" && uid !== pod.uid && uid !== staticUid(pod.annotations)) {
      throw new CniFailure(
        "unknown-pod",
        `pod ${namespace}/${name} has UID ${pod.uid}; the call is for an earlier pod of that name, with UID ${uid}`,
      );
    }
    return pod;
  }
}

/** The address, if the result has it: an attachment may get the address of one family alone. */
function givenBy(result: CniResult, address: IpAddress | undefined): IpAddress | undefined {
  return result.ips.some((ip) => ip.address.split("/")[0] === String(address)) ? address : undefined;
}

async function release(deps: Pick<CniDeps, "network" | "free">, attachment: Attachment): Promise<void> {
  await deps.network.tearDown(attachment);
  deps.free(attachment);
}

/** The address stays taken if the link cannot be removed: an address is free only after its link is gone. */
async function undo(deps: Pick<CniDeps, "network" | "free">, attachment: Attachment, cause: unknown): Promise<void> {
  try {
    await release(deps, attachment);
  } catch (error) {
    throw new AggregateError([cause, error], "ADD failed, and its changes could not be undone");
  }
}

/** The pod as the runtime names it, with the UID; `undefined` if the runtime does not pass the UID. */
function podOf({ args }: CniArgs): PodIdentity | undefined {
  const { K8S_POD_NAMESPACE: namespace = "", K8S_POD_NAME: name = "", K8S_POD_UID: uid = "" } = args;
  return uid === "" ? undefined : { namespace, name, uid };
}

/** The handlers of a gRPC server for these calls. */
export function cniHandlers(call: CniCaller): Readonly<Record<string, GrpcHandler>> {
  return byteHandlers(call, (error) => new CniFailure("invalid-arguments", error.message, { cause: error }));
}

/** Reads the container id and the interface name; aliases of links have both, separated by colons. */
function attachmentOf(args: CniArgs): Attachment {
  const { containerId, ifname } = args;
  if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$/.test(containerId)) {
    throw new CniFailure(
      "invalid-arguments",
      `container_id "${containerId}" is not a container id of at most 128 characters`,
    );
  }
  if (!/^[^\s/:]{1,15}$/.test(ifname))
    throw new CniFailure("invalid-arguments", `ifname "${ifname}" is not an interface name`);
  return { containerId, ifname };
}

function configOf(args: CniArgs): ReturnType<typeof parseNetworkConfig> {
  try {
    return parseNetworkConfig(new TextDecoder().decode(args.stdinData));
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniFailure("invalid-config", error.message, { cause: error });
  }
}

/**
 * Maps an error to a CNI failure: an expected error without a kind is `internal`, an abort is `try-again`. An unexpected error is a bug
 * and is rethrown unchanged.
 */
function failureOf(error: unknown, signal: AbortSignal): unknown {
  if (error instanceof CniFailure) return error;
  if (signal.aborted && error === signal.reason) {
    return new CniFailure("try-again", `the call was cancelled: ${describeError(error)}`, { cause: error });
  }
  if (error instanceof ExpectedError || error instanceof AggregateError) {
    return new CniFailure("internal", describeError(error), { cause: error });
  }
  return error;
}
