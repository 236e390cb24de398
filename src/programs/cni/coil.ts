import {
  type CniCall,
  CniCode,
  CniError,
  type CniNetworkCommand,
  type CniResult,
  compareVersions,
  convertResult,
  isNetworkCommand,
  type NetworkConfig,
  parseCniCall,
  parseNetworkConfig,
  parseResult,
  VALID_ATTACHMENTS,
} from "#wire/cni";
import {
  CNI_ERROR_TYPE_URL,
  CNI_SERVICE,
  type CniArgs,
  CniRpcError,
  decodeAddResponse,
  decodeCniError,
  EMPTY_CNI_ARGS,
  encodeCniArgs,
  encodeGcArgs,
} from "#wire/cnirpc";
import { decodeGrpcMessage, decodeStatus, frameMessage, GrpcCode, GrpcWireError, unframeUnary } from "#wire/grpc";
import { Http2Call, Http2Error, type Http2Response, MAX_RESPONSE_BYTES } from "#wire/http2";
import { hasAttachment } from "./leftover.ts";
import { isOwnNetns, ownNetnsError } from "./own-netns.ts";
import { type Connection, connect } from "./runtime.ts";

/** Time limit of a call of coild, seconds (docs/spec/pod-network.md#11). */
const DEADLINE_SECONDS = 60;

const METHOD = { ADD: "Add", DEL: "Del", CHECK: "Check", STATUS: "Status", GC: "GC" } as const;

/** The `coil` plugin: passes the call to coild, and returns coild's answer. Throws {@link CniError}. */
export async function runCoil(
  env: Readonly<Record<string, string | undefined>>,
  input: Promise<string>,
): Promise<string> {
  // The namespace is checked while standard input is read, so the check takes no extra time.
  const [inOwnNetns, stdin] = await Promise.all([isOwnNetns(env), input]);
  const command = env["CNI_COMMAND"] ?? "";
  if (isNetworkCommand(command)) return runForNetwork(command, env, parseNetworkConfig(stdin), stdin);
  const call = parseCniCall(env);
  const config = parseNetworkConfig(stdin);
  requireVersionOf(call.command, config);
  if (inOwnNetns && call.command !== "DEL") throw ownNetnsError(env);
  const request = encodeCniArgs(requestOf(call, config, stdin));
  let reply: Uint8Array;
  try {
    reply = await callCoild(config.socket, METHOD[call.command], request);
  } catch (error) {
    if (await isDoneWithout(call, error)) return "";
    throw error;
  }
  // The common library does the same: everything that can be removed is removed, and the fault is returned nevertheless.
  if (inOwnNetns) throw ownNetnsError(env);
  if (call.command !== "ADD") return "";
  if (config.prevResult !== undefined) return JSON.stringify(prevResultOf(config, config.prevResult));
  return JSON.stringify(convertResult(parseReply(reply), config.cniVersion));
}

/** prevResult as the runtime gave it, which is in the configuration's version; one in another version is converted. */
function prevResultOf({ rawPrevResult, cniVersion }: NetworkConfig, prevResult: CniResult): object {
  const raw = rawPrevResult as { readonly cniVersion?: unknown };
  return raw.cniVersion === cniVersion ? raw : convertResult(prevResult, cniVersion);
}

/** Runs GC or STATUS, which concern a network, not a container. Prints nothing on success. */
async function runForNetwork(
  command: CniNetworkCommand,
  env: Readonly<Record<string, string | undefined>>,
  config: NetworkConfig,
  stdin: string,
): Promise<string> {
  requireVersionOf(command, config);
  if (command === "GC") {
    const { validAttachments: attachments, name: network } = config;
    if (attachments === undefined) {
      throw new CniError(CniCode.invalidConfig, `network configuration: ${VALID_ATTACHMENTS} is missing; GC needs it`);
    }
    await callCoild(config.socket, METHOD.GC, encodeGcArgs({ network, attachments }));
    return "";
  }
  const args = { ...EMPTY_CNI_ARGS, path: env["CNI_PATH"] ?? "", stdinData: new TextEncoder().encode(stdin) };
  try {
    await callCoild(config.socket, METHOD.STATUS, encodeCniArgs(args));
  } catch (error) {
    // Without coild no ADD can be served.
    if (!(error instanceof CniError) || error.cniCode !== CniCode.tryAgainLater) throw error;
    throw new CniError(CniCode.notAvailable, error.message, { details: error.details, cause: error });
  }
  return "";
}

/** The first version of the configuration that has the command (CNI specification, "Version considerations"). */
const FIRST_VERSION: Readonly<Record<string, string>> = { CHECK: "0.4.0", GC: "1.1.0", STATUS: "1.1.0" };

/** Throws {@link CniError} 1 if the version of the configuration is older than the command. */
function requireVersionOf(command: string, { cniVersion }: NetworkConfig): void {
  const first = FIRST_VERSION[command];
  if (first === undefined || compareVersions(cniVersion, first) >= 0) return;
  throw new CniError(
    CniCode.incompatibleVersion,
    `config version does not allow ${command}: it needs cniVersion ${first} or later, not ${cniVersion}`,
  );
}

/**
 * True if a DEL can succeed although coild cannot be reached: the network namespace is gone and no link of the host has this
 * attachment's alias, so nothing is left to delete. Otherwise the DEL is an error, so that the runtime tries again.
 */
async function isDoneWithout(call: CniCall, error: unknown): Promise<boolean> {
  if (call.command !== "DEL" || !(error instanceof CniError) || error.cniCode !== CniCode.tryAgainLater) return false;
  return !(await hasAttachment(call));
}

function requestOf(call: CniCall, config: NetworkConfig, stdin: string): CniArgs {
  const { prevResult } = config;
  return {
    containerId: call.containerId,
    netns: call.netns,
    ifname: call.ifname,
    args: { ...call.args, IS_CHAINED: String(prevResult !== undefined) },
    path: call.path,
    stdinData: new TextEncoder().encode(stdin),
    ips: (prevResult?.ips ?? []).map((ip) => ip.address.split("/")[0] ?? ""),
    interfaces: Object.fromEntries(
      (prevResult?.interfaces ?? []).map((link) => [link.name, link.sandbox !== undefined]),
    ),
  };
}

function parseReply(reply: Uint8Array): ReturnType<typeof parseResult> {
  try {
    return parseResult(JSON.parse(new TextDecoder().decode(decodeAddResponse(reply))));
  } catch (error) {
    throw new CniError(CniCode.internal, "coild's answer to ADD cannot be decoded", { cause: error });
  }
}

/** Makes one unary call. Throws {@link CniError}: coild's own error, 11 if coild cannot be reached, 999 if its answer is malformed. */
async function callCoild(socket: string, method: string, message: Uint8Array): Promise<Uint8Array> {
  const response = await exchange(
    socket,
    new Http2Call({
      path: `/${CNI_SERVICE}/${method}`,
      authority: "localhost",
      headers: {
        te: "trailers",
        "content-type": "application/grpc",
        "user-agent": "isthmus-cni",
        "grpc-timeout": `${DEADLINE_SECONDS}S`,
      },
      body: frameMessage(message),
    }),
  );
  const status = Number(response.headers.get("grpc-status") ?? Number.NaN);
  if (status === GrpcCode.ok) return decoded(() => unframeUnary(response.body, MAX_RESPONSE_BYTES));
  throw decoded(() => errorOf(response, status));
}

/** The error that coild's status stands for. */
function errorOf(response: Http2Response, status: number): CniError {
  const message = decodeGrpcMessage(response.headers.get("grpc-message") ?? "");
  const packed = response.headers.get("grpc-status-details-bin");
  const detail =
    packed === undefined ? undefined : decodeStatus(packed).details.find((any) => any.typeUrl === CNI_ERROR_TYPE_URL);
  if (detail !== undefined) {
    const error = decodeCniError(detail.value);
    // 0 is not an error code, so an error detail with code 0 is treated as an internal error.
    return new CniError(error.code === 0 ? CniCode.internal : error.code, error.msg, { details: error.details });
  }
  const code = status === GrpcCode.unavailable ? CniCode.tryAgainLater : CniCode.internal;
  const http = response.headers.get(":status") ?? "none";
  const shown = Number.isNaN(status) ? `HTTP status ${http} and no gRPC status` : `gRPC status ${status}`;
  return new CniError(code, message === "" ? `coild answered with ${shown}` : message);
}

/** Runs a decoder. If the decoder refuses its input, throws an internal error, so that the plugin does not crash. */
function decoded<T>(decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    if (!(error instanceof GrpcWireError || error instanceof CniRpcError)) throw error;
    throw new CniError(CniCode.internal, `coild's answer cannot be decoded: ${error.message}`, { cause: error });
  }
}

/** Runs the call over a connection of its own, until the stream ends, the connection breaks or the deadline passes. */
async function exchange(path: string, call: Http2Call): Promise<Http2Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Http2Response>();
  const later = (message: string): void => reject(new CniError(CniCode.tryAgainLater, message));
  const timer = setTimeout(() => later(`coild did not answer within ${DEADLINE_SECONDS} s`), DEADLINE_SECONDS * 1000);
  let connection: Connection | undefined;
  try {
    connection = await connect(path, {
      data: (chunk) => {
        try {
          connection?.write(call.receive(chunk));
        } catch (error) {
          if (!(error instanceof Http2Error)) throw error;
          reject(
            new CniError(CniCode.internal, `coild's answer cannot be decoded: ${error.message}`, { cause: error }),
          );
        }
        if (call.response !== undefined) resolve(call.response);
      },
      closed: (error) =>
        later(`coild closed the connection without an answer${error === undefined ? "" : `: ${error.message}`}`),
    });
    connection.write(call.start());
    return await promise;
  } finally {
    clearTimeout(timer);
    connection?.close();
  }
}
