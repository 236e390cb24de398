/**
 * The messages of etcd's API v3 that a reader of keys needs: `KV/Range` and `Auth/Authenticate`.
 * Source: etcd's `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto`. Codecs only; no sockets.
 *
 * ```ts
 * const request = encodeRangeRequest({ key, rangeEnd: prefixEnd(key), limit: 500, revision: 0 });
 * const { kvs, more, revision } = decodeRangeResponse(answer);
 * ```
 */
import { ExpectedError } from "#base/errors";
import { fieldBytes, fieldText, ProtoError, type ProtoField, ProtoWriter, readFields } from "#wire/protobuf";

export type EtcdWireErrorCode = "malformed";

/** The bytes are not a message of etcd's API. */
export class EtcdWireError extends ExpectedError<EtcdWireErrorCode> {
  override readonly name = "EtcdWireError";
}

/** The paths of the methods over HTTP/2. */
export const ETCD_RANGE = "/etcdserverpb.KV/Range";
export const ETCD_AUTHENTICATE = "/etcdserverpb.Auth/Authenticate";

/** The part of `etcdserverpb.RangeRequest` that is used here. */
export interface RangeRequest {
  readonly key: Uint8Array;
  /** The first key that is not in the range. */
  readonly rangeEnd: Uint8Array;
  /** The maximum number of keys in the answer. 0: no maximum. */
  readonly limit: number;
  /** The revision to read. 0: the newest. */
  readonly revision: number;
}

/** The part of `mvccpb.KeyValue` that is used here. */
export interface KeyValue {
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

/** The part of `etcdserverpb.RangeResponse` that is used here. */
export interface RangeResponse {
  /** The revision of the store at the time of the answer. */
  readonly revision: number;
  readonly kvs: readonly KeyValue[];
  /** True if the range has more keys than `limit`. */
  readonly more: boolean;
}

export function encodeRangeRequest({ key, rangeEnd, limit, revision }: RangeRequest): Uint8Array {
  return new ProtoWriter().bytes(1, key).bytes(2, rangeEnd).uint(3, limit).uint(4, revision).finish();
}

/** Throws {@link EtcdWireError}. Unknown fields are skipped. */
export function decodeRangeResponse(bytes: Uint8Array): RangeResponse {
  const kvs: KeyValue[] = [];
  let revision = 0;
  let more = false;
  read("RangeResponse", bytes, (field) => {
    if (field.number === 1) revision = decodeHeader(fieldBytes(field));
    if (field.number === 2) kvs.push(decodeKeyValue(fieldBytes(field)));
    if (field.number === 3) more = field.value !== 0;
  });
  return { revision, kvs, more };
}

export function encodeAuthenticateRequest(name: string, password: string): Uint8Array {
  return new ProtoWriter().string(1, name).string(2, password).finish();
}

/** The token of an `AuthenticateResponse`; empty if it has none. Throws {@link EtcdWireError}. */
export function decodeAuthenticateResponse(bytes: Uint8Array): string {
  let token = "";
  read("AuthenticateResponse", bytes, (field) => {
    if (field.number === 2) token = fieldText(field);
  });
  return token;
}

/** The end of the range of all keys that begin with `prefix`, as etcd's clients compute it. */
export function prefixEnd(prefix: Uint8Array): Uint8Array {
  const last = prefix.findLastIndex((byte) => byte < 0xff);
  // If all bytes are 0xff the range has no end, which is written as one zero byte.
  if (last < 0) return Uint8Array.of(0);
  const end = prefix.slice(0, last + 1);
  end[last] = (prefix[last] ?? 0) + 1;
  return end;
}

/** The first key after `key` in etcd's order. */
export function keyAfter(key: Uint8Array): Uint8Array {
  const next = new Uint8Array(key.length + 1);
  next.set(key);
  return next;
}

/** The revision in a `ResponseHeader`. */
function decodeHeader(bytes: Uint8Array): number {
  let revision = 0;
  for (const field of readFields(bytes)) if (field.number === 3) revision = field.value;
  return revision;
}

function decodeKeyValue(bytes: Uint8Array): KeyValue {
  let key: Uint8Array = new Uint8Array(0);
  let value: Uint8Array = new Uint8Array(0);
  for (const field of readFields(bytes)) {
    if (field.number === 1) key = fieldBytes(field);
    if (field.number === 5) value = fieldBytes(field);
  }
  return { key, value };
}

function read(message: string, bytes: Uint8Array, take: (field: ProtoField) => void): void {
  try {
    for (const field of readFields(bytes)) take(field);
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new EtcdWireError("malformed", `cannot decode ${message} of etcd: ${error.message}`, { cause: error });
  }
}
