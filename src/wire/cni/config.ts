import { NAME_PATTERN } from "./call.ts";
import { CniCode, CniError } from "./errors.ts";
import { type CniResult, parseResult } from "./result.ts";
import { ABSENT_VERSION, type CniVersion, requireVersion } from "./versions.ts";

/** A plugin's configuration as it arrives on standard input. */
export interface NetworkConfig {
  readonly cniVersion: CniVersion;
  readonly name: string;
  readonly type: string;
  /** coild's UNIX socket. */
  readonly socket: string;
  /** The result of the previous plugin, if there is one. */
  readonly prevResult: CniResult | undefined;
  /** prevResult as it was received, to be passed on unchanged. */
  readonly rawPrevResult: unknown;
  /** `cni.dev/valid-attachments`: the attachments that a GC must keep; `undefined` if the key is absent. */
  readonly validAttachments: readonly AttachmentId[] | undefined;
}

/** One interface of one container. */
export interface AttachmentId {
  readonly containerId: string;
  readonly ifname: string;
}

/** The key of the attachments that a GC must keep (CNI specification, "GC"). */
export const VALID_ATTACHMENTS = "cni.dev/valid-attachments";

export const DEFAULT_SOCKET = "/run/coild.sock";

/**
 * Reads a configuration; one without a socket gets `defaultSocket`. Throws {@link CniError}: 6 if the text is not a JSON object, 1 for an unsupported version, 7 for a wrong field.
 */
export function parseNetworkConfig(text: string, defaultSocket: string = DEFAULT_SOCKET): NetworkConfig {
  const config = parseObject(text);
  const version = config["cniVersion"] ?? ABSENT_VERSION;
  if (typeof version !== "string") throw invalid("cniVersion", version, "a string such as 1.0.0");
  const cniVersion = requireVersion(version);
  const { name, type, socket = defaultSocket, prevResult } = config;
  if (typeof name !== "string" || !NAME_PATTERN.test(name)) throw invalid("name", name, "a network name");
  if (typeof type !== "string" || type === "") throw invalid("type", type, "the plugin's file name");
  if (typeof socket !== "string" || !socket.startsWith("/")) throw invalid("socket", socket, "an absolute path");
  return {
    cniVersion,
    name,
    type,
    socket,
    prevResult: prevResult === undefined || prevResult === null ? undefined : parseResult(prevResult),
    rawPrevResult: prevResult,
    validAttachments: parseAttachments(config[VALID_ATTACHMENTS]),
  };
}

function parseAttachments(value: unknown): readonly AttachmentId[] | undefined {
  if (value === undefined) return undefined;
  // A Go program writes an empty list as null.
  if (value === null) return [];
  const wanted = "a list of {containerID, ifname}";
  if (!Array.isArray(value)) throw invalid(VALID_ATTACHMENTS, value, wanted);
  return value.map((entry: unknown, at) => {
    const { containerID, ifname } = (entry ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof containerID === "string" && typeof ifname === "string") return { containerId: containerID, ifname };
    throw invalid(`${VALID_ATTACHMENTS}[${at}]`, entry, "{containerID, ifname}");
  });
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new CniError(CniCode.decodingFailure, "cannot decode the network configuration: it is not JSON", {
      cause: error,
    });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new CniError(CniCode.decodingFailure, "cannot decode the network configuration: it is not a JSON object");
  }
  return value as Record<string, unknown>;
}

/** The maximum length of a value in a message, in characters. */
const MAX_SHOWN = 200;

function invalid(field: string, value: unknown, wanted: string): CniError {
  const text = JSON.stringify(value) ?? "";
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  const found = value === undefined ? "is missing" : `is ${shown}`;
  return new CniError(CniCode.invalidConfig, `network configuration: ${field} ${found}; it must be ${wanted}`);
}
