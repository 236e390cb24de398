import { ApiError, badRequest } from "../errors.ts";
import {
  expired,
  numberOf,
  parseRevision,
  parseSelection,
  type Selection,
  selects,
  tooLarge,
} from "../handlers/list.ts";
import type { ResourceDef } from "../resources/types.ts";
import type { Collection } from "../store/collection.ts";
import type { Entry } from "../store/entry.ts";
import { negotiate } from "./accept.ts";
import type { Call } from "./call.ts";
import { isTrue, type ResourceRequest } from "./request-info.ts";
import type { ServerState } from "./state.ts";
import { Watcher } from "./watch.ts";

/** The bound on watches at a time. */
export const MAX_WATCHES = 10_000;

/** Without `timeoutSeconds` a watch ends after 30 to 60 minutes, so that clients do not all connect again at the same time. */
const MIN_TIMEOUT_MS = 30 * 60 * 1000;

/**
 * Starts a watch; the response stays open. One from a revision of the future is accepted, and silent until that revision is reached, as Kubernetes
 * has it (kubernetes/kubernetes#107457). Throws ApiError: `Expired` (410), `Timeout` (a streaming list of
 * such a revision), `BadRequest`.
 */
export function startWatch(state: ServerState, parsed: ResourceRequest, call: Call): void {
  const { resource, namespace, name } = parsed;
  const { searchParams } = call.url;
  const selection = parseSelection(resource, namespace, name, searchParams);
  const collection = state.store.collection(resource.storage);
  const wanted = searchParams.get("resourceVersion") ?? "";
  const revision = parseRevision(wanted);
  const bookmarks = isTrue(searchParams.get("allowWatchBookmarks"));
  const streaming = streamsInitial(searchParams);
  if (state.watchers.size >= MAX_WATCHES) {
    throw new ApiError("TooManyRequests", `cannot start a watch: ${MAX_WATCHES} are running`, {
      details: { retryAfterSeconds: 1 },
    });
  }
  // A streaming list waits for the state of its revision.
  if (streaming === true && revision > state.store.revision) throw tooLarge(revision, state.store.revision);
  const sendsState = streaming ?? revision === 0;
  if (!sendsState && revision !== 0 && revision < collection.floor) throw expired(revision, collection.floor);
  const timeout = numberOf(searchParams, "timeoutSeconds") * 1000;
  const watcher: Watcher = new Watcher({
    response: call.response,
    resource,
    selection,
    form: negotiate(call.request.headers.accept, searchParams.get("includeObject")),
    encoder: state.encoder,
    clock: state.clock,
    bookmarks,
    initial: sendsState ? initialState(collection, resource, selection) : [],
    markInitialEnd: streaming === true && bookmarks,
    after: revision,
    missed: sendsState || revision === 0 ? [] : collection.since(revision),
    timeoutMs: timeout > 0 ? timeout : MIN_TIMEOUT_MS * (1 + state.random()),
    revision: () => state.store.revision,
    onEnd: (why) => {
      unsubscribe();
      state.watchers.delete(watcher);
      if (why === "slow")
        state.log.warn("dropped a watch whose client is too slow", {
          resource: resource.plural,
          userAgent: call.request.headers["user-agent"],
        });
    },
  });
  const unsubscribe = collection.subscribe(watcher.deliver);
  state.watchers.add(watcher);
  watcher.start();
}

/** `sendInitialEvents`; undefined when it is not given. */
function streamsInitial(query: URLSearchParams): boolean | undefined {
  const text = query.get("sendInitialEvents");
  if (text === null) return undefined;
  if (query.get("resourceVersionMatch") !== "NotOlderThan") {
    throw badRequest(
      "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
  }
  return isTrue(text);
}

function initialState(collection: Collection, resource: ResourceDef, selection: Selection): Entry[] {
  const entries = collection.list(selection.namespace === "" ? "" : `${selection.namespace}/`);
  return entries.filter((entry) => selects(selection, resource, entry.object));
}
