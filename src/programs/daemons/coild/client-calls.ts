import { type ClientDeps, CniFailure, type CniFailureKind } from "#features/cni";
import { EgressClientError, type EgressClientErrorCode, type EgressClients } from "#features/egress";

/** The kinds of CNI failures by error code: a repeated ADD may succeed, and CHECK names what is wrong. */
const KINDS: Readonly<Record<EgressClientErrorCode, CniFailureKind>> = {
  refused: "try-again",
  "try-again": "try-again",
  "not-ready": "not-ready",
  incomplete: "internal",
};

/** The NAT clients as the CNI service calls them: converts their failures to those that runtimes understand. `undefined` without clients. */
export function clientCalls(clients: Pick<EgressClients, "setUp" | "check"> | undefined): ClientDeps | undefined {
  if (clients === undefined) return undefined;
  return {
    setUp: (request, options) => asFailure(() => clients.setUp(request, options)),
    check: (pod, options) => asFailure(() => clients.check(pod, options)),
  };
}

async function asFailure(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof EgressClientError)) throw error;
    throw new CniFailure(KINDS[error.code], error.message, { cause: error.cause });
  }
}
