import type { AbortOptions } from "#base/async";
import { keyAfter, prefixEnd, type RangeRequest, type RangeResponse } from "#wire/etcd";
import { MigratorError } from "./errors.ts";
import type { V1Entry } from "./v1-data.ts";

/** The part of etcd that a snapshot is read from. */
export interface EtcdStore {
  range(request: RangeRequest, options: AbortOptions): Promise<RangeResponse>;
}

/** Keys on a page. */
const PAGE = 500;
/**
 * The maximum number of keys under the prefix. Coil has one key for each pod, block and pool, so more keys mean that the prefix is wrong.
 */
const MAX_KEYS = 2_000_000;
/** The number of times that the snapshot is begun again because etcd has compacted its revision. */
const MAX_RESTARTS = 5;

/**
 * All keys that begin with `prefix`, at one revision, so that a block is never seen both before and after it was moved. Rejects with
 * {@link MigratorError}, `compacted` only if etcd compacts faster than the keys can be read.
 */
export async function readSnapshot(
  store: EtcdStore,
  prefix: string,
  options: AbortOptions & { readonly pageSize?: number },
): Promise<V1Entry[]> {
  for (let restarts = 0; ; restarts += 1) {
    try {
      return await readAtOneRevision(store, prefix, options);
    } catch (error) {
      if (!(error instanceof MigratorError && error.code === "compacted") || restarts >= MAX_RESTARTS) throw error;
    }
  }
}

async function readAtOneRevision(
  store: EtcdStore,
  prefix: string,
  { pageSize = PAGE, ...options }: AbortOptions & { readonly pageSize?: number },
): Promise<V1Entry[]> {
  const start = new TextEncoder().encode(prefix);
  const rangeEnd = prefixEnd(start);
  const entries: V1Entry[] = [];
  let revision = 0;
  for (let key: Uint8Array = start; ; ) {
    const page = await store.range({ key, rangeEnd, limit: pageSize, revision }, options);
    // The first answer fixes the revision of all others.
    if (revision === 0) revision = page.revision;
    for (const { key: found, value } of page.kvs) {
      if (Buffer.compare(found, key) < 0 || Buffer.compare(found, rangeEnd) >= 0)
        throw new MigratorError(
          "etcd-refused",
          "etcd answered with keys that were not requested, or in the wrong order",
        );
      entries.push({ key: new TextDecoder().decode(found), value });
      key = keyAfter(found);
    }
    if (!page.more) return entries;
    if (page.kvs.length === 0)
      throw new MigratorError(
        "etcd-refused",
        "etcd answered without keys, although its answer says that there are more",
      );
    if (entries.length > MAX_KEYS)
      throw new MigratorError("invalid-data", `more than ${MAX_KEYS} keys begin with ${prefix}: check --etcd-prefix`);
  }
}
