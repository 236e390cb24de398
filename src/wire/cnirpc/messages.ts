import { ExpectedError } from "#base/errors";
import { fieldBytes, fieldText, ProtoError, type ProtoField, ProtoWriter, readFields } from "#wire/protobuf";

export type CniRpcErrorCode = "malformed";

/** The bytes are not a valid `pkg.cnirpc` message. */
export class CniRpcError extends ExpectedError<CniRpcErrorCode> {
  override readonly name = "CniRpcError";
}

/** The gRPC service and the paths of its methods. */
export const CNI_SERVICE = "pkg.cnirpc.CNI";
/** The type URL of the detail in gRPC errors. */
export const CNI_ERROR_TYPE_URL = "type.googleapis.com/pkg.cnirpc.CNIError";

/** `pkg.cnirpc.CNIArgs`. */
export interface CniArgs {
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  /** `CNI_ARGS`, and `IS_CHAINED`. */
  readonly args: Readonly<Record<string, string>>;
  readonly path: string;
  readonly stdinData: Uint8Array;
  /** Addresses of prevResult, without prefix length. */
  readonly ips: readonly string[];
  /** Interfaces of prevResult: the name of each, and whether it has a sandbox. */
  readonly interfaces: Readonly<Record<string, boolean>>;
}

export const EMPTY_CNI_ARGS: CniArgs = {
  containerId: "",
  netns: "",
  ifname: "",
  args: {},
  path: "",
  stdinData: new Uint8Array(0),
  ips: [],
  interfaces: {},
};

/** `pkg.cnirpc.GCArgs`, which Coil does not have: the attachments that a GC of a network must keep. */
export interface GcArgs {
  /** The network's name. */
  readonly network: string;
  readonly attachments: readonly { readonly containerId: string; readonly ifname: string }[];
}

/** `pkg.cnirpc.CNIError`. `code` is a CNI error code. */
export interface CniErrorDetail {
  readonly code: number;
  readonly msg: string;
  readonly details: string;
}

export function encodeCniArgs(args: CniArgs): Uint8Array {
  const writer = new ProtoWriter().string(1, args.containerId).string(2, args.netns).string(3, args.ifname);
  for (const [key, value] of Object.entries(args.args)) {
    writer.message(4, new ProtoWriter().string(1, key).string(2, value).finish());
  }
  writer.string(5, args.path).bytes(6, args.stdinData);
  for (const ip of args.ips) writer.message(7, new TextEncoder().encode(ip));
  for (const [name, hasSandbox] of Object.entries(args.interfaces)) {
    writer.message(
      8,
      new ProtoWriter()
        .string(1, name)
        .uint(2, hasSandbox ? 1 : 0)
        .finish(),
    );
  }
  return writer.finish();
}

/** Throws {@link CniRpcError}. Unknown fields are skipped. */
export function decodeCniArgs(bytes: Uint8Array): CniArgs {
  const text: Record<number, string> = {};
  const args: [string, string][] = [];
  const ips: string[] = [];
  const interfaces: [string, boolean][] = [];
  let stdinData = EMPTY_CNI_ARGS.stdinData;
  read("CNIArgs", bytes, (field) => {
    if (field.number === 4) args.push(mapEntry(fieldBytes(field), fieldText, ""));
    else if (field.number === 6) stdinData = fieldBytes(field);
    else if (field.number === 7) ips.push(fieldText(field));
    else if (field.number === 8) interfaces.push(mapEntry(fieldBytes(field), (value) => value.value !== 0, false));
    else if (field.number <= 5) text[field.number] = fieldText(field);
  });
  return {
    containerId: text[1] ?? "",
    netns: text[2] ?? "",
    ifname: text[3] ?? "",
    args: Object.fromEntries(args),
    path: text[5] ?? "",
    stdinData,
    ips,
    interfaces: Object.fromEntries(interfaces),
  };
}

export function encodeGcArgs({ network, attachments }: GcArgs): Uint8Array {
  const writer = new ProtoWriter();
  for (const { containerId, ifname } of attachments) {
    writer.message(1, new ProtoWriter().string(1, containerId).string(2, ifname).finish());
  }
  return writer.string(2, network).finish();
}

/** Throws {@link CniRpcError}. Unknown fields are skipped. */
export function decodeGcArgs(bytes: Uint8Array): GcArgs {
  const attachments: { containerId: string; ifname: string }[] = [];
  let network = "";
  read("GCArgs", bytes, (field) => {
    if (field.number === 2) network = fieldText(field);
    if (field.number !== 1) return;
    const one = { containerId: "", ifname: "" };
    for (const part of readFields(fieldBytes(field))) {
      if (part.number === 1) one.containerId = fieldText(part);
      if (part.number === 2) one.ifname = fieldText(part);
    }
    attachments.push(one);
  });
  return { network, attachments };
}

/** `pkg.cnirpc.AddResponse`: the CNI result as JSON text. */
export function encodeAddResponse(result: Uint8Array): Uint8Array {
  return new ProtoWriter().bytes(1, result).finish();
}

/** Throws {@link CniRpcError}. */
export function decodeAddResponse(bytes: Uint8Array): Uint8Array {
  let result: Uint8Array = new Uint8Array(0);
  read("AddResponse", bytes, (field) => {
    if (field.number === 1) result = fieldBytes(field);
  });
  return result;
}

export function encodeCniError(error: CniErrorDetail): Uint8Array {
  return new ProtoWriter().uint(1, error.code).string(2, error.msg).string(3, error.details).finish();
}

/** Throws {@link CniRpcError}. */
export function decodeCniError(bytes: Uint8Array): CniErrorDetail {
  const error = { code: 0, msg: "", details: "" };
  read("CNIError", bytes, (field) => {
    if (field.number === 1) error.code = field.value;
    if (field.number === 2) error.msg = fieldText(field);
    if (field.number === 3) error.details = fieldText(field);
  });
  return error;
}

/** The error of a failed call, as a CNI executable prints it: the failure's message, and that of its cause where it says more. Pure. */
export function cniErrorOf(failure: Error, code: number): CniErrorDetail {
  const details = failure.cause instanceof Error ? failure.cause.message : "";
  return { code, msg: failure.message, details: details === failure.message ? "" : details };
}

/** A {@link CniErrorDetail} as the one detail of a gRPC status (google.protobuf.Any). Pure. */
export function cniErrorAny(detail: CniErrorDetail): { readonly typeUrl: string; readonly value: Uint8Array } {
  return { typeUrl: CNI_ERROR_TYPE_URL, value: encodeCniError(detail) };
}

function read(message: string, bytes: Uint8Array, take: (field: ProtoField) => void): void {
  try {
    for (const field of readFields(bytes)) take(field);
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new CniRpcError("malformed", `cannot decode ${message}: ${error.message}`, { cause: error });
  }
}

function mapEntry<T>(bytes: Uint8Array, value: (field: ProtoField) => T, absent: T): [string, T] {
  let entry: [string, T] = ["", absent];
  for (const field of readFields(bytes)) {
    if (field.number === 1) entry = [fieldText(field), entry[1]];
    if (field.number === 2) entry = [entry[0], value(field)];
  }
  return entry;
}
